"""S3 backend, over s3fs: AWS and every server that speaks its protocol."""

from __future__ import annotations

from openpaisdk.storage.backends.base import changed_error
from openpaisdk.storage.backends.fsspec_store import FsspecStore
from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectPage, PartUpload
from openpaisdk.storage.backends.request_body import register_payload
from openpaisdk.storage.backends.s3_upload_records import UploadRecord
from paiprotocol.errors import (
    ConfigError,
    Conflict,
    ConnectionFailed,
    NotConnected,
    NotFound,
    PaiError,
    TooManyRequests,
    Unauthorized,
    UsageError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
_NO_UPLOAD = "NoSuchUpload"
_WRONG_CREDENTIALS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure")
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired")
_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
# Codes that some servers send with another status than AWS, or in a body without a status.
_STATUS_OF_CODE = {
    **dict.fromkeys(("SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "Throttling"), 503),
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "XRateQuotaExceeded"), 507),
    **dict.fromkeys(("NoSuchKey", "404"), 404),
    **dict.fromkeys(("AccessDenied", "403"), 403),
}
_SET_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or choose a profile of ~/.aws/credentials with "
    "AWS_PROFILE."
)


class S3Options:
    """How a bucket is reached. What is empty comes from AWS's own variables and profile files."""

    __slots__ = ("access_key_id", "endpoint_url", "region", "secret_access_key", "session_token")

    def __init__(
        self,
        *,
        access_key_id: str = "",
        secret_access_key: str = "",
        session_token: str = "",
        endpoint_url: str = "",
        region: str = "",
    ):
        self.access_key_id = access_key_id
        self.secret_access_key = secret_access_key
        self.session_token = session_token
        self.endpoint_url = endpoint_url
        self.region = region


class S3Backend(FsspecStore):
    """One bucket."""

    service, package, extra = "S3", "s3fs", "s3"

    def __init__(
        self, bucket: str, options: S3Options, *, url: str = "", root: str = "", read_only: bool = False
    ):
        super().__init__(url or f"s3://{bucket}", root, read_only=read_only)
        self.bucket = bucket
        self._options = options

        from botocore.loaders import create_loader

        # The description of S3's API, parsed once: it is most of the cost of a file system.
        self._loader = create_loader()

    def make_filesystem(self, loop: asyncio.AbstractEventLoop) -> Any:
        from aiobotocore.session import AioSession

        register_payload()
        options = self._options
        session = AioSession()
        session.register_component("data_loader", self._loader)
        filesystem = self.library.S3FileSystem(
            key=options.access_key_id or None,
            secret=options.secret_access_key or None,
            token=options.session_token or None,
            endpoint_url=options.endpoint_url or None,
            client_kwargs={"region_name": options.region} if options.region else {},
            config_kwargs={
                "retries": {"mode": "standard", "total_max_attempts": 1},
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": READ_TIMEOUT_S,
            },
            session=session,
            loop=loop,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        filesystem.retries = 1
        return filesystem

    async def close_filesystem(self, filesystem: Any) -> None:
        if filesystem._s3 is not None:  # it has sent a request
            await filesystem._s3creator.__aexit__(None, None, None)

    def object_url(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def canonical(self, path: str) -> str:
        return self.object_url(self.key_of(path))

    # -- requests ------------------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo | None:
        try:
            response = self.request("head_object", Key=key)
        except NotFound:
            return None
        except (ConnectionFailed, TooManyRequests):
            raise
        except PaiError:
            # A response to HEAD has no body, so the reason is not in it.
            self.list_page(key, "", flat=True, limit=1)
            raise
        return ObjectInfo(
            key, int(response["ContentLength"]), response["LastModified"].timestamp(), str(response["ETag"])
        )

    def list_page(self, prefix: str, page: str, *, flat: bool, limit: int = 1000) -> ObjectPage:
        more: dict[str, object] = {} if flat else {"Delimiter": "/"}
        if page:
            more["ContinuationToken"] = page
        response = self.request("list_objects_v2", Prefix=prefix, MaxKeys=limit, **more)
        return ObjectPage(
            [
                ObjectInfo(
                    each["Key"], int(each["Size"]), each["LastModified"].timestamp(), str(each["ETag"])
                )
                for each in response.get("Contents", ())
            ],
            [each["Prefix"] for each in response.get("CommonPrefixes", ())],
            response.get("NextContinuationToken", "") if response.get("IsTruncated") else "",
        )

    def read_range(self, key: str, offset: int, length: int, etag: str) -> bytes:
        if not length:
            return b""
        try:
            data, _ = self._get(key, Range=f"bytes={offset}-{offset + length - 1}", IfMatch=etag)
        except (Conflict, NotFound):
            raise changed_error(self.object_url(key)) from None
        return data

    def read_object(self, key: str) -> tuple[bytes, ObjectInfo]:
        data, response = self._get(key)
        return data, ObjectInfo(key, len(data), response["LastModified"].timestamp(), str(response["ETag"]))

    def put_object(self, key: str, data: bytes | bytearray, *, overwrite: bool = True) -> None:
        self.request("put_object", Key=key, Body=data, **_only_new(overwrite))

    def begin_upload(self, key: str, content: str, *, resumes: bool) -> PartUpload:
        return S3Upload(self, key, content, resumes=resumes)

    def delete_objects(self, keys: list[str]) -> None:
        response = self.request(
            "delete_objects", Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
        )
        for problem in response.get("Errors", ()):
            raise self._error_of_code(str(problem.get("Code")), 0, str(problem.get("Key")), {})

    def copy_object(self, key: str, new_key: str) -> None:
        if key.endswith("/"):
            # The mark of a folder. s3fs would drop the slash, and some servers do: they copy another object
            # or none.
            self.put_object(new_key, self.read_object(key)[0])
            return
        self.call(lambda fs: fs._cp_file(f"{self.bucket}/{key}", f"{self.bucket}/{new_key}"), key)

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One request of S3's API; the response."""
        response: dict[str, Any] = self.call(
            lambda fs: fs._call_s3(method, Bucket=self.bucket, **parameters), str(parameters.get("Key", ""))
        )
        return response

    def _get(self, key: str, **parameters: Any) -> tuple[bytes, dict[str, Any]]:
        async def read(fs: Any) -> tuple[bytes, dict[str, Any]]:
            response = await fs._call_s3("get_object", Bucket=self.bucket, Key=key, **parameters)
            async with response["Body"] as body:
                return await body.read(), response

        return self.call(read, key)

    # -- errors --------------------------------------------------------------------------------

    def error(self, error: Exception, key: str) -> PaiError:
        import aiohttp
        from botocore import exceptions as botocore_errors

        cause = error if isinstance(error, botocore_errors.BotoCoreError) else error.__cause__ or error
        if isinstance(cause, botocore_errors.ClientError):
            response = cause.response
            problem = response.get("Error", {})
            metadata = response.get("ResponseMetadata", {})
            headers = metadata.get("HTTPHeaders", {})
            return self._error_of_code(
                str(problem.get("Code", "")), int(metadata.get("HTTPStatusCode", 0)), key, headers
            )
        if isinstance(cause, (botocore_errors.NoCredentialsError, botocore_errors.PartialCredentialsError)):
            return Unauthorized(f"There are no credentials for {self.url}.", hint=_SET_CREDENTIALS)
        if isinstance(cause, (botocore_errors.TokenRetrievalError, botocore_errors.SSOError)):
            return self._expired()
        if isinstance(cause, (botocore_errors.EndpointConnectionError, botocore_errors.ConnectTimeoutError)):
            return NotConnected(
                f"The storage {self.url} cannot be reached{self._at()}.",
                hint="Check the network, and AWS_ENDPOINT_URL if the storage is not on AWS.",
            )
        if isinstance(cause, (botocore_errors.ConfigParseError, botocore_errors.ProfileNotFound, ValueError)):
            return ConfigError(f"The settings for {self.url} are wrong: {_first_line(cause)}.")
        if isinstance(cause, botocore_errors.ParamValidationError):
            return UsageError(f"{self.url} is not an address on S3: {_first_line(cause)}.")
        if isinstance(cause, (botocore_errors.BotoCoreError, OSError, aiohttp.ClientError)):
            return ConnectionFailed(
                f"The connection to the storage {self.url} was lost: {_first_line(cause)}."
            )
        raise error

    def _error_of_code(self, code: str, status: int, key: str, headers: dict[str, str]) -> PaiError:
        if code in _EXPIRED:
            return self._expired()
        if code in _WRONG_CREDENTIALS:
            return Unauthorized(
                f"The storage {self.url} rejects the credentials ({code}).", hint=_SET_CREDENTIALS
            )
        if code == "NoSuchBucket":
            return UsageError(
                f"There is no bucket called {self.bucket!r}{self._at()}.",
                hint="Check the name, and AWS_ENDPOINT_URL if the storage is not on AWS.",
            )
        if code in _OTHER_REGION:
            region = headers.get("x-amz-bucket-region", "")
            return ConfigError(
                f"The bucket {self.bucket!r} is in {f'the region {region}' if region else 'another region'}.",
                hint=f"Set AWS_DEFAULT_REGION={region or 'REGION'}.",
            )
        if code in ("PreconditionFailed", "ConditionalRequestConflict"):
            return Conflict(f"{self.object_url(key)} changed.")
        if code == _NO_UPLOAD:
            return PaiError(
                f"The upload of {self.object_url(key)} was ended by another program.", code=_NO_UPLOAD
            )
        if code == "InvalidBucketName":
            return UsageError(f"{self.bucket!r} cannot be the name of a bucket.")
        return self.error_of_status(
            _STATUS_OF_CODE.get(code, status), code, key, headers.get("retry-after", "")
        )

    def _expired(self) -> Unauthorized:
        return Unauthorized(
            f"The credentials for {self.url} have expired.",
            hint="Renew them: aws sso login, or new values of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN.",
        )

    def _at(self) -> str:
        import os

        endpoint = (
            self._options.endpoint_url
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
        )
        return f" at {endpoint}" if endpoint else ""


class S3Upload(PartUpload):
    """A multipart upload. Its id is recorded on this machine, its parts are listed by S3."""

    def __init__(self, store: S3Backend, key: str, content: str, *, resumes: bool):
        self._store = store
        self._key = key
        self._record = (
            UploadRecord.open(store.canonical("/" + key), store.upload_records) if resumes else None
        )
        self._etags: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._has_ended = False
        try:
            self._id = self._resume(content) if self._record is not None else ""
            if not self._id:
                self._id = str(store.request("create_multipart_upload", Key=key)["UploadId"])
                if self._record is not None:
                    self._record.write(content, self._id)
        except BaseException:
            if self._record is not None:
                self._record.close(keep=True)
            raise

    def _resume(self, content: str) -> str:
        """The id of an interrupted upload of this content; one of another content is aborted."""
        assert self._record is not None
        recorded, self._id = self._record.read()
        if not self._id:
            return ""
        if recorded != content:
            self._abort()
            return ""
        try:
            self._list_parts()
        except PaiError as e:
            if e.code != _NO_UPLOAD and not isinstance(e, NotFound):
                raise
            return ""
        return self._id

    def _list_parts(self) -> None:
        marker = 0
        while True:
            response = self._store.request(
                "list_parts", Key=self._key, UploadId=self._id, PartNumberMarker=marker
            )
            for part in response.get("Parts", ()):
                marker = int(part["PartNumber"])
                self._etags[marker], self._sizes[marker] = str(part["ETag"]), int(part["Size"])
            if not response.get("IsTruncated") or not response.get("Parts"):
                return

    def stored_parts(self) -> dict[int, int]:
        return dict(self._sizes)

    def put(self, number: int, data: bytearray) -> None:
        response = self._store.request(
            "upload_part", Key=self._key, UploadId=self._id, PartNumber=number, Body=data
        )
        self._etags[number] = str(response["ETag"])

    def complete(self, count: int, size: int, *, overwrite: bool) -> None:
        parts = [{"PartNumber": number, "ETag": self._etags[number]} for number in range(1, count + 1)]
        try:
            self._store.request(
                "complete_multipart_upload",
                Key=self._key,
                UploadId=self._id,
                MultipartUpload={"Parts": parts},
                **_only_new(overwrite),
            )
        except PaiError as e:
            if e.code != _NO_UPLOAD:
                raise
            # The response to an earlier attempt may have been lost.
            arrived = self._store.head(self._key)
            if arrived is None or arrived.size != size:
                raise
        self._end()

    def abort(self) -> None:
        self._abort()
        self._end()

    def _abort(self) -> None:
        try:
            self._store.request("abort_multipart_upload", Key=self._key, UploadId=self._id)
        except PaiError:
            pass  # the store deletes it when it expires

    def _end(self) -> None:
        self._has_ended = True
        if self._record is not None:
            self._record.close(keep=False)

    def close(self) -> None:
        if self._record is not None:
            self._record.close(keep=True)
        elif not self._has_ended:
            # Without a record no other attempt can find its parts.
            self.abort()


def _only_new(overwrite: bool) -> dict[str, str]:
    return {} if overwrite else {"IfNoneMatch": "*"}


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].removesuffix(".")


__all__ = ["S3Backend", "S3Options"]
