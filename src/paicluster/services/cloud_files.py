"""Files of the cluster's storages in a cloud, for readers that have no credentials: pages in a browser.

The cluster reads with its own credentials, for the users who may use the storage. A user sees what `pai`
shows of it: all of a shared storage, else the folder of the same name. One page of a listing or one block of
a file is in memory at a time. A cloud is asked once and not for long: a page tells its user to try again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from openpaisdk.errors import (
    ConfigError,
    ConnectionFailed,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    TooManyRequests,
    Unavailable,
)
from paicluster.services.cloud_buckets import CloudBucket
from paicluster.services.storages import StorageConfig

if TYPE_CHECKING:
    from openpaisdk.storage.backends.fsspec_store import FsspecStore
    from openpaisdk.storage.backends.object_store import ObjectInfo, ObjectStore

P = ParamSpec("P")
T = TypeVar("T")

MAX_PAGE_ENTRIES = 1000
"""Entries of one page of a listing: as many as a cloud lists at once."""
MAX_PATH_LENGTH = 1024
"""Characters of a path: clouds have keys of at most 1024 bytes."""
MAX_CURSOR_LENGTH = 8192
"""Characters of what continues a listing; clouds choose it, and use a few hundred."""
MAX_CALLS_PER_STORAGE = 4
"""Requests to one cloud at a time, each in a thread. Each storage has its own: one that does not answer holds
up no other."""
MAX_WAITING_PER_STORAGE = 16
"""Listings and openings of files of one storage that run or wait: a cloud that does not answer must not
collect more."""
MAX_WAITING_PER_USER = 8
"""The same, of all storages for one user."""
MAX_DOWNLOADS = 16
"""Downloads at one time. Each holds a block in memory for as long as its client takes to read it."""
MAX_DOWNLOADS_PER_USER = 4
CALL_TIMEOUT_S = 10.0
"""How long one request to a cloud may take: a page waits for it."""
ANSWER_TIMEOUT_S = 20.0
"""How long a listing or a block may take, with the wait for a thread."""
NO_CREDENTIALS = "NoStorageCredentialsError"

# Of the calls of a storage: downloads must not hold up pages.
_BLOCKS_AT_ONCE = MAX_CALLS_PER_STORAGE - 1
# At 100 kB/s it arrives within the time of a request.
_BLOCK_BYTES = 1 << 20
# What the connection of a slow client holds.
_PIECE_BYTES = 256 << 10
# A download of hours should survive a lost connection.
_BLOCK_ATTEMPTS = 3


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


class _NoAnswer(Unavailable):
    """A cloud that may answer the next time."""


@dataclass(slots=True)
class _Bucket:
    """Threads and client of one storage."""

    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_CALLS_PER_STORAGE, "cloud")
    )
    block_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_BLOCKS_AT_ONCE))
    lock: threading.Lock = field(default_factory=threading.Lock)
    secrets: Mapping[str, str] = field(default_factory=dict)
    store: FsspecStore | None = None
    waiting: int = 0
    is_closed: bool = False

    def open(self, name: str, bucket: CloudBucket) -> ObjectStore:
        """The client, made again for new credentials. Runs in a thread."""
        secrets = bucket.secrets()
        with self.lock:
            if self.is_closed:
                raise Unavailable("The server stops.")
            if self.store is None or self.secrets != secrets:
                replaced, self.store = self.store, _connect(name, bucket, secrets)
                self.secrets = secrets
                if replaced is not None:
                    # Its downloads go on.
                    replaced.close_connections()
            return self.store

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self.is_closed = True
            if self.store is not None:
                # The exit of the process waits for the threads.
                self.store.close_connections(cancels_calls=True)


@dataclass(slots=True)
class BucketFiles:
    """Reads the storages in clouds, each with a client of its own."""

    _buckets: defaultdict[str, _Bucket] = field(default_factory=lambda: defaultdict(_Bucket))
    _waiting: Counter[str] = field(default_factory=Counter)
    _downloads: Counter[str] = field(default_factory=Counter)

    async def list(self, storage: StorageConfig, username: str, path: str, cursor: str) -> CloudListing:
        names = _names(storage, username, path)
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise InvalidParameters("This listing cannot be continued.")
        with self._place(storage, username):
            return await self._run(storage, lambda: _list(self._store(storage), names, path, cursor))

    async def open(self, storage: StorageConfig, username: str, path: str) -> CloudFile:
        names = _names(storage, username, path)
        with self._place(storage, username):
            return await self._run(storage, lambda: _open(self._store(storage), storage, names, path))

    def begin_download(self, username: str) -> Callable[[], None]:
        """Count a download of this user; returns what ends it. Raises Unavailable for too many."""
        if self._downloads[username] >= MAX_DOWNLOADS_PER_USER:
            raise Unavailable(
                f"User {username} has {MAX_DOWNLOADS_PER_USER} downloads from clouds, which is the limit.",
                hint="Wait for the end of one, or use pai.",
            )
        if self._downloads.total() >= MAX_DOWNLOADS:
            raise Unavailable(
                f"{MAX_DOWNLOADS} files of clouds are being downloaded, which is the limit.",
                hint="Try again in a moment, or use pai.",
            )
        self._downloads[username] += 1
        return lambda: _release(self._downloads, username)

    async def pieces(self, storage: StorageConfig, file: CloudFile, length: int) -> AsyncIterator[bytes]:
        """The first ``length`` bytes of a file, within a download that `begin_download` has counted."""
        for at in range(0, length, _BLOCK_BYTES):
            block = await self._block(storage, file, at, min(_BLOCK_BYTES, length - at))
            for start in range(0, len(block), _PIECE_BYTES):
                yield block[start : start + _PIECE_BYTES]

    async def _block(self, storage: StorageConfig, file: CloudFile, at: int, size: int) -> bytes:
        left = _BLOCK_ATTEMPTS
        while True:
            left -= 1
            try:
                async with self._buckets[storage.name].block_turns:
                    return await self._run(storage, file.store.read_range, file.key, at, size, file.etag)
            except _NoAnswer:
                if not left:
                    raise

    def close(self) -> None:
        for bucket in self._buckets.values():
            bucket.close()

    @contextlib.contextmanager
    def _place(self, storage: StorageConfig, username: str) -> Iterator[None]:
        """A place among the requests that wait; raises Unavailable where there are too many."""
        bucket = self._buckets[storage.name]
        if bucket.waiting >= MAX_WAITING_PER_STORAGE:
            raise Unavailable(
                f"Too many requests wait for the storage {storage.name}: try again in a moment.",
                hint="Its cloud may not answer: an administrator can check it.",
            )
        if self._waiting[username] >= MAX_WAITING_PER_USER:
            raise Unavailable(
                f"{MAX_WAITING_PER_USER} requests of user {username} wait for storages in clouds, which is "
                "the limit: try again in a moment."
            )
        bucket.waiting += 1
        self._waiting[username] += 1
        try:
            yield
        finally:
            bucket.waiting -= 1
            _release(self._waiting, username)

    async def _run(
        self, storage: StorageConfig, call: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        threads = self._buckets[storage.name].threads
        hint = "An administrator can check its settings and credentials."
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(
                    threads, lambda: call(*arguments, **named)
                )
        except TimeoutError:
            raise _NoAnswer(
                f"The storage {storage.name} cannot be read: its cloud does not answer.", hint=hint
            ) from None
        except (NotFound, InvalidParameters):
            raise
        except PaiError as error:
            if error.code == NO_CREDENTIALS:
                raise
            is_passing = isinstance(error, (ConnectionFailed, TooManyRequests))
            # A 401 or 403 of the cloud is not one of this cluster: the caller would be signed out.
            raise (_NoAnswer if is_passing else Unavailable)(
                f"The storage {storage.name} cannot be read: {error.message}", hint=hint
            ) from error

    def _store(self, storage: StorageConfig) -> ObjectStore:
        """The client of a storage. Runs in a thread."""
        bucket = storage.remote
        if not isinstance(bucket, CloudBucket) or bucket.settings.credentials is None:
            raise Forbidden(
                f"The cluster has no credentials of the storage {storage.name}.",
                code=NO_CREDENTIALS,
                hint="Use pai with your own.",
            )
        return self._buckets[storage.name].open(storage.name, bucket)


def _release(counts: Counter[str], username: str) -> None:
    counts[username] -= 1
    if not counts[username]:
        del counts[username]


def _connect(name: str, bucket: CloudBucket, secrets: Mapping[str, str]) -> FsspecStore:
    # Here: a server without such storages loads none of it.
    from openpaisdk.storage.backends.fsspec_store import FsspecStore
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
    if not isinstance(store, FsspecStore):
        raise ConfigError(f"The storage {name} is not in a cloud.")
    store.call_timeout_s = CALL_TIMEOUT_S
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
