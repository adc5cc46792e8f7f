"""Clients of the cluster's remote storages, with the cluster's credentials: threads, limits and errors.

Each storage has a client and threads of its own: one that does not answer holds up no other. A call that
takes too long is answered with an error, and while as many calls as there are threads are late, the storage
gets no more requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from paicluster.remote_storages.bucket_tree import MAX_MOVED, BucketTree
from paicluster.remote_storages.cloud_buckets import CloudBucket
from paicluster.remote_storages.folder_tree import MAX_SHARE_ENTRIES, HdfsTree, ShareTree
from paicluster.remote_storages.network_shares import SAMBA, NetworkShare
from paicluster.remote_storages.remote_tree import MAX_DELETED, TRANSIENT, RemoteTree
from paicluster.remote_storages.storages import ExternalHdfs, StorageConfig
from paiprotocol.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    Unavailable,
    UsageError,
)

if TYPE_CHECKING:
    from openpaisdk.storage.backends.connection_pool import ConnectionPool
    from openpaisdk.storage.backends.fsspec_store import FsspecStore
    from openpaisdk.storage.backends.samba import SambaBackend

P = ParamSpec("P")
T = TypeVar("T")

MAX_PATH_LENGTH = 1024
"""Characters of a path: clouds have keys of at most 1024 bytes."""
MAX_CALLS_PER_STORAGE = 4
"""Requests to one storage at a time, each in a thread: as many to read it, and as many to change it."""
MAX_WAITING_PER_STORAGE = 16
"""Requests for one storage that run or wait: one that does not answer must not collect more."""
MAX_WAITING_PER_USER = 8
"""The same, of all storages for one user."""
MAX_RESPONSE_BYTES = 16 << 20
"""What an HDFS may answer at once, but for the bytes of files. A page of a listing has less than 1 MB; only
an HDFS before 2.9 lists a whole folder."""
MAX_SHARE_CALL_S = 30.0
"""How long one call of a share may take, also one that changes it: calls are small. Then its connection is
dropped."""
SHARE_CONNECT_TIMEOUT_S = 10
NO_CREDENTIALS = "NoStorageCredentialsError"
_CHECK_SETTINGS = "An administrator can check its settings and credentials."
_NO_ANSWER = "It may not answer: an administrator can check it."


class NoResponse(Unavailable):
    """A storage did not respond; it may respond to a retry."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """Limit of concurrent transfers, of all users and of each. ``what`` names them in errors."""

    total: int
    per_user: int
    what: str
    _taken: Counter[str] = field(default_factory=Counter)

    def acquire(self, username: str) -> Callable[[], None]:
        """Count a transfer; returns the function that ends it. Raises Unavailable at the limit."""
        if self._taken[username] >= self.per_user:
            raise Unavailable(
                f"User {username} has {self.per_user} {self.what}, which is the limit.",
                hint="Wait for the end of one, or use pai.",
            )
        if self._taken.total() >= self.total:
            raise Unavailable(
                f"The cluster has {self.total} {self.what}, which is the limit.",
                hint="Try again in a moment, or use pai.",
            )
        self._taken[username] += 1
        return lambda: _release(self._taken, username)


@dataclass(slots=True)
class ClientSettings:
    """Settings of clients. ``verb`` completes "the storage cannot be …" in errors. ``call_timeout_s`` limits
    one request to a storage; ``response_timeout_s`` a whole call, with the wait for a thread."""

    verb: str
    call_timeout_s: float
    response_timeout_s: float
    read_only: bool = True
    # Folder of the records of unfinished uploads.
    upload_records: str = ""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    max_share_entries: int = MAX_SHARE_ENTRIES
    max_share_call_s: float = MAX_SHARE_CALL_S
    share_connect_timeout_s: int = SHARE_CONNECT_TIMEOUT_S
    # What one step of a change deletes and moves.
    max_deleted: int = MAX_DELETED
    max_moved: int = MAX_MOVED


class RemoteClient(ABC):
    """Threads and connections of one storage."""

    hides_denials = False
    """Whether a denial by the storage means wrong settings, and not a missing permission of the user."""
    has_path_errors = False
    """Whether a UsageError of the storage is about the path, and not about the settings."""

    def __init__(self, storage: StorageConfig, settings: ClientSettings):
        self.storage = storage
        self.settings = settings
        self.threads = ThreadPoolExecutor(MAX_CALLS_PER_STORAGE, "remote")
        self.waiting = 0
        self.lock = threading.Lock()
        self.is_closed = False
        # Calls whose callers have got an error, and whose threads still wait for the storage.
        self._late: set[Future[Any]] = set()

    @abstractmethod
    def tree(self, username: str) -> RemoteTree:
        """The files that a user sees. Runs in a thread."""

    @abstractmethod
    def close_connections(self) -> None:
        """End the calls that run: the exit of the process waits for the threads. Called with the lock."""

    @property
    def is_stuck(self) -> bool:
        return len(self._late) >= MAX_CALLS_PER_STORAGE

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call in a thread. Raises TimeoutError if it takes too long."""
        running = self.threads.submit(call)
        try:
            async with asyncio.timeout(self.settings.response_timeout_s):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            if not running.done():
                self._late.add(running)
                running.add_done_callback(self._late.discard)
            raise

    def check_open(self) -> None:
        if self.is_closed:
            raise Unavailable("The server stops.")

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self.is_closed = True
            self.close_connections()


class BucketClient(RemoteClient):
    hides_denials = True

    def __init__(self, storage: StorageConfig, settings: ClientSettings, bucket: CloudBucket):
        super().__init__(storage, settings)
        self._bucket = bucket
        self._secrets: Mapping[str, str] = {}
        self._store: FsspecStore | None = None

    def tree(self, username: str) -> RemoteTree:
        """The files of the bucket; new credentials get a new connection."""
        if self._bucket.settings.credentials is None:
            raise Forbidden(
                f"The cluster has no credentials of the storage {self.storage.name}.",
                code=NO_CREDENTIALS,
                hint="Use pai with your own.",
            )
        secrets = self._bucket.secrets()
        with self.lock:
            self.check_open()
            if self._store is None or self._secrets != secrets:
                replaced, self._store = self._store, self._connect(secrets)
                self._secrets = secrets
                if replaced is not None:
                    # Its transfers go on.
                    replaced.close_connections()
            return BucketTree(
                self._store, max_deleted=self.settings.max_deleted, max_moved=self.settings.max_moved
            )

    def close_connections(self) -> None:
        if self._store is not None:
            self._store.close_connections(cancels_calls=True)

    def _connect(self, secrets: Mapping[str, str]) -> FsspecStore:
        # Here: a server without such storages loads none of it.
        from openpaisdk.storage.backends.fsspec_store import FsspecStore
        from openpaisdk.storage.cloud import open_storage

        bucket = self._bucket.settings
        store = open_storage(
            self._bucket.kind,
            self.storage.name,
            f"{bucket.name}/{bucket.prefix}",
            endpoint_url=bucket.endpoint_url,
            options={**secrets, "region": bucket.region, "accountName": bucket.account},
            read_only=self.settings.read_only,
        )
        if not isinstance(store, FsspecStore):
            raise ConfigError(f"The storage {self.storage.name} is not in a cloud.")
        store.call_timeout_s = self.settings.call_timeout_s
        store.upload_records = self.settings.upload_records
        return store


class HdfsClient(RemoteClient):
    """Client of an HDFS, which gets the user's name, as from `pai`, and checks permissions itself."""

    has_path_errors = True

    def __init__(self, storage: StorageConfig, settings: ClientSettings, hdfs: ExternalHdfs):
        super().__init__(storage, settings)
        self._hdfs = hdfs
        self._pool: ConnectionPool | None = None

    def tree(self, username: str) -> RemoteTree:
        from openpaisdk.storage.backends.connection_pool import ConnectionPool
        from openpaisdk.storage.backends.webhdfs import WebHdfs
        from openpaisdk.storage.catalog import webhdfs_endpoint

        with self.lock:
            self.check_open()
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.storage.name,
                    webhdfs_endpoint(self._hdfs.url),
                    request_timeout_s=self.settings.call_timeout_s,
                )
            pool = self._pool
        backend = WebHdfs(pool, url=self.storage.name, user=username)
        backend.max_response_bytes = self.settings.max_response_bytes
        return HdfsTree(lambda: backend)

    def close_connections(self) -> None:
        if self._pool is not None:
            self._pool.interrupt()


class ShareClient(RemoteClient):
    """A share of Samba, as the account in its credentials file. Each thread has a connection of its own: one
    that is dropped takes no other call with it."""

    def __init__(self, storage: StorageConfig, settings: ClientSettings, share: NetworkShare):
        super().__init__(storage, settings)
        self._share = share
        self._of_threads: dict[int, tuple[Mapping[str, str], SambaBackend]] = {}

    def tree(self, username: str) -> RemoteTree:
        return ShareTree(
            self._backend,
            "" if self.storage.share else username,
            max_entries=self.settings.max_share_entries,
            max_deleted=self.settings.max_deleted,
        )

    def _backend(self) -> SambaBackend:
        """The connection of this thread, made again for new credentials."""
        from openpaisdk.storage.cloud import open_share

        secrets = self._share.secrets()
        thread = threading.get_ident()
        with self.lock:
            self.check_open()
            had, backend = self._of_threads.get(thread, (None, None))
            if backend is None or had != secrets:
                if backend is not None:
                    backend.drop_connection()
                backend = open_share(
                    self._share.settings.path,
                    self.storage.name,
                    "",
                    options=dict(secrets),
                    read_only=self.settings.read_only,
                    allows_old_guests=False,
                )
                backend.call_timeout_s = min(self.settings.call_timeout_s, self.settings.max_share_call_s)
                backend.connect_timeout_s = self.settings.share_connect_timeout_s
                self._of_threads[thread] = secrets, backend
            return backend

    def close_connections(self) -> None:
        for _, backend in self._of_threads.values():
            backend.interrupt()


def is_readable(storage: StorageConfig) -> bool:
    """Whether the server can read files of this storage: it mounts neither NFS nor Azure Files."""
    remote = storage.remote
    return isinstance(remote, CloudBucket | ExternalHdfs) or (
        isinstance(remote, NetworkShare) and remote.kind == SAMBA
    )


def _new_client(storage: StorageConfig, settings: ClientSettings) -> RemoteClient:
    match storage.remote:
        case CloudBucket() as bucket:
            return BucketClient(storage, settings, bucket)
        case ExternalHdfs() as hdfs:
            return HdfsClient(storage, settings, hdfs)
        case NetworkShare() as share if is_readable(storage):
            return ShareClient(storage, settings, share)
    raise InvalidParameters(f"The server does not read the storage {storage.name}.")


@dataclass(slots=True)
class RemoteClients:
    """Clients of all storages."""

    settings: ClientSettings
    _clients: dict[str, RemoteClient] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def queue_slot(self, storage: StorageConfig, username: str) -> Iterator[None]:
        """A slot among the requests that wait; raises Unavailable where there are too many."""
        client = self._client(storage)
        if client.waiting >= MAX_WAITING_PER_STORAGE:
            raise Unavailable(
                f"Too many requests wait for the storage {storage.name}: try again in a moment.",
                hint=_NO_ANSWER,
            )
        if self._waiting[username] >= MAX_WAITING_PER_USER:
            raise Unavailable(
                f"{MAX_WAITING_PER_USER} requests of user {username} wait for remote storages, which is "
                "the limit: try again in a moment."
            )
        client.waiting += 1
        self._waiting[username] += 1
        try:
            yield
        finally:
            client.waiting -= 1
            _release(self._waiting, username)

    async def run(
        self, storage: StorageConfig, call: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Run a function in a thread of this storage; errors of the storage become those of the cluster."""
        client = self._client(storage)
        if client.is_stuck:
            raise Unavailable(
                f"The storage {storage.name} has not answered {MAX_CALLS_PER_STORAGE} earlier requests yet: "
                "try again later.",
                hint=_NO_ANSWER,
            )
        try:
            return await client.run(lambda: call(*arguments, **named))
        except TimeoutError:
            raise NoResponse(
                f"The storage {storage.name} cannot be {self.settings.verb}: it does not answer.",
                hint=_CHECK_SETTINGS,
            ) from None
        except (NotFound, InvalidParameters, Conflict):
            raise
        except PaiError as error:
            is_denial = isinstance(error, Forbidden) and not client.hides_denials
            if is_denial or error.code == NO_CREDENTIALS or error.status == 507:
                raise
            if isinstance(error, UsageError) and client.has_path_errors:
                raise InvalidParameters(error.message) from error
            raise self._error(storage, error) from error

    def _error(self, storage: StorageConfig, error: PaiError) -> PaiError:
        from openpaisdk.storage.backends.webhdfs import LEASE_HELD

        message = f"The storage {storage.name} cannot be {self.settings.verb}: {error.message}"
        if error.code == LEASE_HELD:
            return NoResponse(message, hint="Try again in a minute: the storage releases it.")
        if isinstance(error, TRANSIENT):
            return NoResponse(message, hint=_CHECK_SETTINGS)
        # A 401 of the storage is not one of this cluster: the caller would be signed out.
        if self.settings.read_only:
            return Unavailable(message, hint=_CHECK_SETTINGS)
        # A client repeats what is unavailable, and this would fail again.
        return Forbidden(message, hint=_CHECK_SETTINGS)

    def tree(self, storage: StorageConfig, username: str) -> RemoteTree:
        """The files that a user sees of a storage. Runs in a thread."""
        return self._client(storage).tree(username)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, storage: StorageConfig) -> RemoteClient:
        client = self._clients.get(storage.name)
        if client is None:
            client = self._clients[storage.name] = _new_client(storage, self.settings)
        return client


def names_of(storage: StorageConfig, username: str, path: str) -> list[str]:
    """Names of a path from the root of the storage; none leads out of what the user may see."""
    if len(path) > MAX_PATH_LENGTH:
        raise InvalidParameters(f"A path has at most {MAX_PATH_LENGTH} characters.")
    names = [*(() if storage.share else (username,)), *(name for name in path.split("/") if name)]
    if any(name in (".", "..") or "\0" in name for name in names):
        raise InvalidParameters(f"{path!r} is not a path of a storage.")
    return names


def _release(counts: Counter[str], username: str) -> None:
    counts[username] -= 1
    if not counts[username]:
        del counts[username]
