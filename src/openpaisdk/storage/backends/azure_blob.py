"""Azure Blob backend, over adlfs: containers with or without a hierarchical namespace."""

from __future__ import annotations

from openpaisdk.storage.backends.azure_account import SET_ACCOUNT, AzureAccount
from openpaisdk.storage.backends.base import changed_error
from openpaisdk.storage.backends.fsspec_store import FsspecStore
from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectPage, PartUpload
from paiprotocol.errors import (
    ConfigError,
    Conflict,
    ConnectionFailed,
    NotConnected,
    NotFound,
    PaiError,
    Unauthorized,
    Unavailable,
    UsageError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

_DELETES_AT_ONCE = 16
_COPY_POLL_S = 0.2
_NO_RETRIES = {"retry_total": 0}
_WRONG_CREDENTIALS = (
    "AuthenticationFailed",
    "AuthorizationFailure",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
)
_FOLDER_MARK = "hdi_isfolder"
"""Metadata of the folders of a hierarchical namespace."""


class AzureBlobBackend(FsspecStore):
    """One container."""

    service, package, extra = "Azure", "adlfs", "azure"

    def __init__(
        self, container: str, account: AzureAccount, *, url: str = "", root: str = "", read_only: bool = False
    ):
        super().__init__(url or f"az://{container}", root, read_only=read_only)
        import logging

        # Its libraries warn about responses that we report in our own words; else Python prints that.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        self.container = container
        self.account = account

    def make_filesystem(self, loop: asyncio.AbstractEventLoop) -> Any:
        account = self.account
        connection_string = account.as_connection_string()
        options: dict[str, object] = {"connection_string": connection_string}
        if not connection_string:
            host = account.endpoint.partition("://")[2]
            options = {"account_name": account.name, "account_host": host, "anon": False}
        return self.library.AzureBlobFileSystem(
            **options, loop=loop, skip_instance_cache=True, use_listings_cache=False
        )

    async def close_filesystem(self, filesystem: Any) -> None:
        utils = self.library.utils
        await utils.close_service_client(filesystem)
        await utils.close_credential(filesystem)

    def object_url(self, key: str) -> str:
        return f"az://{self.container}/{key}"

    def canonical(self, path: str) -> str:
        return f"az://{self.container}@{self.account.name}/{self.key_of(path)}"

    # -- requests ------------------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo | None:
        async def properties(container: Any) -> ObjectInfo:
            return _info(await container.get_blob_client(key).get_blob_properties(**_NO_RETRIES))

        try:
            return self._request(properties, key)
        except NotFound:
            return None

    def list_page(self, prefix: str, page: str, *, flat: bool, limit: int = 1000) -> ObjectPage:
        async def one_page(container: Any) -> ObjectPage:
            from azure.storage.blob.aio import BlobPrefix

            options = {"name_starts_with": prefix, "include": ["metadata"], "results_per_page": limit}
            listing = (
                container.list_blobs(**options, **_NO_RETRIES)
                if flat
                else container.walk_blobs(**options, delimiter="/", **_NO_RETRIES)
            )
            pages = listing.by_page(page or None)
            items = [item async for item in await anext(pages)]
            return ObjectPage(
                [_info(item) for item in items if not isinstance(item, BlobPrefix)],
                [item.name for item in items if isinstance(item, BlobPrefix)],
                pages.continuation_token or "",
            )

        return self._request(one_page)

    def read_range(self, key: str, offset: int, length: int, etag: str) -> bytes:
        if not length:
            return b""

        async def read(container: Any) -> bytes:
            from azure.core import MatchConditions

            download = await container.get_blob_client(key).download_blob(
                offset, length, etag=etag, match_condition=MatchConditions.IfNotModified, **_NO_RETRIES
            )
            content: bytes = await download.readall()
            return content

        try:
            return self._request(read, key)
        except (Conflict, NotFound):
            raise changed_error(self.object_url(key)) from None

    def read_object(self, key: str) -> tuple[bytes, ObjectInfo]:
        async def read(container: Any) -> tuple[bytes, ObjectInfo]:
            download = await container.get_blob_client(key).download_blob(**_NO_RETRIES)
            return await download.readall(), _info(download.properties)

        return self._request(read, key)

    def put_object(self, key: str, data: bytes | bytearray, *, overwrite: bool = True) -> None:
        self._request(
            lambda container: container.get_blob_client(key).upload_blob(
                bytes(data), overwrite=overwrite, validate_content=True, **_NO_RETRIES
            ),
            key,
        )

    def begin_upload(self, key: str, content: str, *, resumes: bool) -> PartUpload:
        return BlockUpload(self, key, content, resumes=resumes)

    def delete_objects(self, keys: list[str]) -> None:
        async def delete(container: Any) -> None:
            import asyncio

            from azure.core.exceptions import ResourceNotFoundError

            async def one(key: str) -> None:
                try:
                    await container.delete_blob(key, delete_snapshots="include", **_NO_RETRIES)
                except ResourceNotFoundError as e:
                    if getattr(e, "error_code", "") != "BlobNotFound":
                        raise

            for start in range(0, len(keys), _DELETES_AT_ONCE):
                await asyncio.gather(*map(one, keys[start : start + _DELETES_AT_ONCE]))

        self._request(delete)

    def copy_object(self, key: str, new_key: str) -> None:
        async def copy(container: Any) -> str:
            import asyncio

            target = container.get_blob_client(new_key)
            started = await target.start_copy_from_url(container.get_blob_client(key).url, **_NO_RETRIES)
            status = str(started["copy_status"])
            while status == "pending":
                await asyncio.sleep(_COPY_POLL_S)
                status = str((await target.get_blob_properties(**_NO_RETRIES)).copy.status)
            return status

        if (status := self._request(copy, key)) != "success":
            raise PaiError(
                f"{self.object_url(key)} could not be copied to {self.object_url(new_key)} ({status})."
            )

    def blocks(self, key: str) -> dict[str, int]:
        """Sizes of the uploaded blocks that are not part of an object yet, by id."""

        async def list_blocks(container: Any) -> dict[str, int]:
            _, waiting = await container.get_blob_client(key).get_block_list("uncommitted", **_NO_RETRIES)
            return {str(block.id): int(block.size) for block in waiting}

        try:
            return self._request(list_blocks, key)
        except NotFound:
            return {}

    def put_block(self, key: str, block_id: str, data: bytearray) -> None:
        self._request(
            lambda container: container.get_blob_client(key).stage_block(
                block_id, bytes(data), validate_content=True, **_NO_RETRIES
            ),
            key,
        )

    def commit_blocks(self, key: str, block_ids: list[str], *, overwrite: bool) -> None:
        async def commit(container: Any) -> None:
            from azure.core import MatchConditions
            from azure.storage.blob import BlobBlock

            condition = {} if overwrite else {"match_condition": MatchConditions.IfMissing}
            await container.get_blob_client(key).commit_block_list(
                [BlobBlock(block_id) for block_id in block_ids], **condition, **_NO_RETRIES
            )

        self._request(commit, key)

    def _request(self, action: Callable[[Any], Awaitable[T]], key: str = "") -> T:
        """The result of a coroutine that gets the client of this container."""
        return self.call(lambda fs: action(fs.service_client.get_container_client(self.container)), key)

    # -- errors --------------------------------------------------------------------------------

    def error(self, error: Exception, key: str) -> PaiError:
        import aiohttp
        from azure.core import exceptions as azure_errors

        if isinstance(error, azure_errors.HttpResponseError) and error.status_code:
            return self._error_of_response(error, key)
        if isinstance(error, azure_errors.ClientAuthenticationError):  # of azure-identity
            return Unauthorized(
                f"There are no credentials for {self.url}.", hint=f"{SET_ACCOUNT} Or log in: az login"
            )
        if isinstance(error, azure_errors.ServiceRequestError):
            return NotConnected(
                f"The storage {self.url} cannot be reached at {self.account.endpoint}.",
                hint="Check the network and the name of the account.",
            )
        if isinstance(error, ValueError):
            return ConfigError(f"The settings for {self.url} are wrong.", hint=SET_ACCOUNT)
        if isinstance(error, (azure_errors.AzureError, OSError, aiohttp.ClientError)):
            return ConnectionFailed(
                f"The connection to the storage {self.url} was lost ({type(error).__name__})."
            )
        raise error

    def _error_of_response(self, error: Any, key: str) -> PaiError:
        reported = getattr(error, "error_code", None) or ""
        status, code = int(error.status_code), str(getattr(reported, "value", reported))
        if code in _WRONG_CREDENTIALS:
            said = str(error).lower()
            if "time frame" in said or "expired" in said or self.account.has_expired():
                return Unauthorized(
                    f"The credentials for {self.url} have expired.",
                    hint="Get a new SAS token for AZURE_STORAGE_SAS_TOKEN, or log in again: az login",
                )
            return Unauthorized(f"The storage {self.url} rejects the credentials ({code}).", hint=SET_ACCOUNT)
        if code in ("ContainerNotFound", "ContainerBeingDeleted", "ResourceNotFound", "InvalidResourceName"):
            return UsageError(
                f"There is no container called {self.container!r} at {self.account.endpoint}.",
                hint="Check the name, and the account.",
            )
        if code in ("InvalidBlockList", "InvalidBlobOrBlock"):
            return Unavailable(
                f"Another program writes to {self.object_url(key)}.",
                hint="Run the same command again when it has finished.",
            )
        if code == "AccountQuotaExceeded":
            status = 507
        if status in (409, 412):
            return Conflict(f"{self.object_url(key)} changed ({code}).")
        headers = error.response.headers if error.response else {}
        return self.error_of_status(status, code, key, str(headers.get("retry-after", "")))


class BlockUpload(PartUpload):
    """An upload in blocks. Azure keeps blocks for a week; their ids name the content they belong to."""

    def __init__(self, store: AzureBlobBackend, key: str, content: str, *, resumes: bool):
        self._store = store
        self._key = key
        self._content = content
        self._stored = store.blocks(key) if resumes else {}

    def stored_parts(self) -> dict[int, int]:
        prefix = f"{self._content}-"
        return {
            int(block_id.removeprefix(prefix)): size
            for block_id, size in self._stored.items()
            if block_id.startswith(prefix)
        }

    def put(self, number: int, data: bytearray) -> None:
        self._store.put_block(self._key, self._id(number), data)

    def complete(self, count: int, size: int, *, overwrite: bool) -> None:
        block_ids = [self._id(number) for number in range(1, count + 1)]
        self._store.commit_blocks(self._key, block_ids, overwrite=overwrite)

    def _id(self, number: int) -> str:
        # All ids of one object must have the same length.
        return f"{self._content}-{number:06d}"


def _info(properties: Any) -> ObjectInfo:
    metadata = properties.metadata or {}
    return ObjectInfo(
        properties.name,
        int(properties.size or 0),
        properties.last_modified.timestamp(),
        str(properties.etag),
        is_folder=str(metadata.get(_FOLDER_MARK, "")).lower() == "true",
    )


__all__ = ["AzureBlobBackend"]
