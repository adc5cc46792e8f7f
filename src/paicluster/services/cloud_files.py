"""Files of the cluster's storages in a cloud, for readers that have no credentials: pages in a browser.

The cluster reads with its own credentials, for the users who may use the storage. A user sees what `pai`
shows of it: all of a shared storage, else the folder of the same name. One page of a listing or one block of
a file is in memory at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from openpaisdk.errors import ConfigError, Forbidden, InvalidParameters, NotFound, PaiError, Unavailable
from paicluster.services.cloud_buckets import CloudBucket
from paicluster.services.storages import StorageConfig

if TYPE_CHECKING:
    from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectStore

P = ParamSpec("P")
T = TypeVar("T")

MAX_PAGE_ENTRIES = 1000
"""Entries of one page of a listing: as many as a cloud lists at once."""
MAX_PATH_LENGTH = 1024
"""Characters of a path: clouds have keys of at most 1024 bytes."""
MAX_CURSOR_LENGTH = 8192
"""Characters of what continues a listing; clouds choose it, and use a few hundred."""
MAX_WAITING = 64
"""Requests to clouds at one time, of which those beyond the threads wait: a cloud that does not answer must
not collect more."""
NO_CREDENTIALS = "NoStorageCredentialsError"

_THREADS = 8
# Few enough that all threads together hold 32 MB.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CloudEntry:
    """A file or a folder. Folders of a cloud have no time."""

    name: str
    is_folder: bool
    size: int = 0
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class CloudListing:
    """``file``: the path is one. ``next`` continues the listing, and is empty at its end."""

    file: CloudEntry | None
    entries: list[CloudEntry]
    next: str = ""


@dataclass(frozen=True, slots=True)
class CloudFile:
    """A version of a file that can be read."""

    name: str
    size: int
    store: ObjectStore
    key: str
    etag: str


@dataclass(slots=True)
class BucketFiles:
    """Reads the storages in clouds, each with a client that is made again for new credentials."""

    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "cloud"))
    _stores: dict[str, tuple[Mapping[str, str], ObjectStore]] = field(default_factory=dict)
    _waiting: int = 0

    async def list(self, storage: StorageConfig, username: str, path: str, cursor: str) -> CloudListing:
        names = _names(storage, username, path)
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise InvalidParameters("This listing cannot be continued.")
        return await self._run(storage, lambda: _list(self._store(storage), names, path, cursor))

    async def open(self, storage: StorageConfig, username: str, path: str) -> CloudFile:
        names = _names(storage, username, path)
        return await self._run(storage, lambda: _open(self._store(storage), storage, names, path))

    async def blocks(self, storage: StorageConfig, file: CloudFile, length: int) -> AsyncIterator[bytes]:
        """The first ``length`` bytes of a file."""
        for at in range(0, length, _BLOCK_BYTES):
            size = min(_BLOCK_BYTES, length - at)
            yield await self._run(storage, file.store.read_range, file.key, at, size, file.etag)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(
        self, storage: StorageConfig, call: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        if self._waiting >= MAX_WAITING:
            raise Unavailable("Too many requests to storages in clouds wait: try again in a moment.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: call(*arguments, **named)
            )
        except (NotFound, InvalidParameters):
            raise
        except PaiError as error:
            if error.code == NO_CREDENTIALS:
                raise
            # A 401 or 403 of the cloud is not one of this cluster: the caller would be signed out.
            raise Unavailable(
                f"The storage {storage.name} cannot be read: {error.message}",
                hint="An administrator can check its settings and credentials.",
            ) from error
        finally:
            self._waiting -= 1

    def _store(self, storage: StorageConfig) -> ObjectStore:
        """The client of a storage. Runs in a thread: two may be made at once, of which one stays."""
        bucket = storage.remote
        if not isinstance(bucket, CloudBucket) or bucket.settings.credentials is None:
            raise Forbidden(
                f"The cluster has no credentials of the storage {storage.name}.",
                code=NO_CREDENTIALS,
                hint="Use pai with your own.",
            )
        secrets = bucket.secrets()
        known = self._stores.get(storage.name)
        if known is None or known[0] != secrets:
            known = self._stores[storage.name] = (secrets, _connect(storage.name, bucket, secrets))
        return known[1]


def _connect(name: str, bucket: CloudBucket, secrets: Mapping[str, str]) -> ObjectStore:
    # Here: a server without such storages loads none of it.
    from openpaisdk.storage.backends.object_store import ObjectStore
    from openpaisdk.storage.cloud import open_storage

    settings = bucket.settings
    options = {**secrets, "region": settings.region, "accountName": settings.account}
    store = open_storage(
        bucket.kind,
        name,
        f"{settings.name}/{settings.prefix}",
        endpoint_url=settings.endpoint_url,
        options=options,
        read_only=True,
    )
    if not isinstance(store, ObjectStore):
        raise ConfigError(f"The storage {name} is not in a cloud.")
    return store


def _names(storage: StorageConfig, username: str, path: str) -> list[str]:
    """Names of a path from the root of the storage; none leads out of what the user may see."""
    if len(path) > MAX_PATH_LENGTH:
        raise InvalidParameters(f"A path has at most {MAX_PATH_LENGTH} characters.")
    names = [*(() if storage.share else (username,)), *(name for name in path.split("/") if name)]
    if any(name in (".", "..") or "\0" in name for name in names):
        raise InvalidParameters(f"{path!r} is not a path of a storage.")
    return names


def _list(store: ObjectStore, names: list[str], path: str, cursor: str) -> CloudListing:
    key = store.key_of("/".join(names))
    prefix = f"{key}/" if key else ""
    page = store.list_page(prefix, cursor, flat=False, limit=MAX_PAGE_ENTRIES)
    entries = {}
    for found in page.objects:
        # The object of the folder itself has no name.
        if name := found.key[len(prefix) :].rstrip("/"):
            entries[name] = _entry(name, found)
    for each in page.prefixes:
        name = each[len(prefix) :].rstrip("/")
        entries[name] = CloudEntry(name, True)
    if not entries and not page.objects and not page.next and path.strip("/"):
        found_here = store.head(key)
        if found_here is None:
            raise NotFound(f"{path}: there is no such file or folder.")
        if not found_here.is_folder:
            return CloudListing(_entry(names[-1], found_here), [])
    # Names that no path can have are left out.
    shown = [
        one for name, one in sorted(entries.items()) if name and "/" not in name and name not in (".", "..")
    ]
    return CloudListing(None, shown, page.next)


def _entry(name: str, found: ObjectInfo) -> CloudEntry:
    if found.is_folder or found.key.endswith("/"):
        return CloudEntry(name, True)
    return CloudEntry(name, False, found.size, found.mtime_ns // 1_000_000)


def _open(store: ObjectStore, storage: StorageConfig, names: list[str], path: str) -> CloudFile:
    found = store.head(store.key_of("/".join(names))) if path.strip("/") else None
    if found is None or found.is_folder:
        raise NotFound(f"{path}: there is no such file.")
    return CloudFile(names[-1], found.size, store, found.key, found.etag)
