"""Clients of the cluster's storages in clouds, with the cluster's credentials: threads, limits and errors.

Each storage has a client and threads of its own: one that does not answer holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from openpaisdk.errors import (
    ConfigError,
    Conflict,
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
    from openpaisdk.storage.backends.object_store import ObjectStore

P = ParamSpec("P")
T = TypeVar("T")

MAX_PATH_LENGTH = 1024
"""Characters of a path: clouds have keys of at most 1024 bytes."""
MAX_CALLS_PER_STORAGE = 4
"""Requests to one cloud at a time, each in a thread: as many to read it, and as many to change it."""
MAX_WAITING_PER_STORAGE = 16
"""Requests for one storage that run or wait: a cloud that does not answer must not collect more."""
MAX_WAITING_PER_USER = 8
"""The same, of all storages for one user."""
NO_CREDENTIALS = "NoStorageCredentialsError"
TRANSIENT = (ConnectionFailed, TooManyRequests, Unavailable)
"""Errors after which the same call may succeed."""
_CHECK_SETTINGS = "An administrator can check its settings and credentials."


class NoResponse(Unavailable):
    """A cloud that may answer the next time."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """How many transfers run at a time, of all users and of each. ``what`` they are, for errors."""

    total: int
    per_user: int
    what: str
    _taken: Counter[str] = field(default_factory=Counter)

    def acquire(self, username: str) -> Callable[[], None]:
        """Count one more; returns what counts it off. Raises Unavailable at the limit."""
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
class CloudClient:
    """Threads and connections of one storage."""

    connect: Callable[[StorageConfig, CloudBucket, Mapping[str, str]], FsspecStore]
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_CALLS_PER_STORAGE, "cloud")
    )
    waiting: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _secrets: Mapping[str, str] = field(default_factory=dict)
    _store: FsspecStore | None = None
    _is_closed: bool = False

    def open(self, storage: StorageConfig, bucket: CloudBucket) -> ObjectStore:
        """The client, made again for new credentials. Runs in a thread."""
        secrets = bucket.secrets()
        with self._lock:
            if self._is_closed:
                raise Unavailable("The server stops.")
            if self._store is None or self._secrets != secrets:
                replaced, self._store = self._store, self.connect(storage, bucket, secrets)
                self._secrets = secrets
                if replaced is not None:
                    # Its transfers go on.
                    replaced.close_connections()
            return self._store

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                # The exit of the process waits for the threads.
                self._store.close_connections(cancels_calls=True)


@dataclass(slots=True)
class CloudClients:
    """Clients of all storages. ``call_timeout_s`` is for one request to a cloud; ``response_timeout_s`` for a
    whole call, with the wait for a thread. ``verb`` is what errors say that a storage cannot be."""

    verb: str
    call_timeout_s: float
    response_timeout_s: float
    read_only: bool = True
    # Folder of the records of unfinished uploads.
    upload_records: str = ""
    _clients: dict[str, CloudClient] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def queue_slot(self, storage: StorageConfig, username: str) -> Iterator[None]:
        """A slot among the requests that wait; raises Unavailable where there are too many."""
        client = self._client(storage)
        if client.waiting >= MAX_WAITING_PER_STORAGE:
            raise Unavailable(
                f"Too many requests wait for the storage {storage.name}: try again in a moment.",
                hint="Its cloud may not answer: an administrator can check it.",
            )
        if self._waiting[username] >= MAX_WAITING_PER_USER:
            raise Unavailable(
                f"{MAX_WAITING_PER_USER} requests of user {username} wait for storages in clouds, which is "
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
        """Run a function in a thread of this storage; errors of the cloud become those of the cluster."""
        threads = self._client(storage).threads
        try:
            async with asyncio.timeout(self.response_timeout_s):
                return await asyncio.get_running_loop().run_in_executor(
                    threads, lambda: call(*arguments, **named)
                )
        except TimeoutError:
            raise NoResponse(
                f"The storage {storage.name} cannot be {self.verb}: its cloud does not answer.",
                hint=_CHECK_SETTINGS,
            ) from None
        except (NotFound, InvalidParameters, Conflict):
            raise
        except PaiError as error:
            if error.code == NO_CREDENTIALS or error.status == 507:
                raise
            raise self._error(storage, error) from error

    def _error(self, storage: StorageConfig, error: PaiError) -> PaiError:
        message = f"The storage {storage.name} cannot be {self.verb}: {error.message}"
        if isinstance(error, TRANSIENT):
            return NoResponse(message, hint=_CHECK_SETTINGS)
        # A 401 of the cloud is not one of this cluster: the caller would be signed out.
        if self.read_only:
            return Unavailable(message, hint=_CHECK_SETTINGS)
        # A client repeats what is unavailable, and this would fail again.
        return Forbidden(message, hint=_CHECK_SETTINGS)

    def store(self, storage: StorageConfig) -> ObjectStore:
        """The client of a storage. Runs in a thread."""
        bucket = storage.remote
        if not isinstance(bucket, CloudBucket) or bucket.settings.credentials is None:
            raise Forbidden(
                f"The cluster has no credentials of the storage {storage.name}.",
                code=NO_CREDENTIALS,
                hint="Use pai with your own.",
            )
        return self._client(storage).open(storage, bucket)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, storage: StorageConfig) -> CloudClient:
        found = self._clients.get(storage.name)
        if found is None:
            found = self._clients[storage.name] = CloudClient(self._connect)
        return found

    def _connect(
        self, storage: StorageConfig, bucket: CloudBucket, secrets: Mapping[str, str]
    ) -> FsspecStore:
        # Here: a server without such storages loads none of it.
        from openpaisdk.storage.backends.fsspec_store import FsspecStore
        from openpaisdk.storage.cloud import open_storage

        settings = bucket.settings
        options = {**secrets, "region": settings.region, "accountName": settings.account}
        store = open_storage(
            bucket.kind,
            storage.name,
            f"{settings.name}/{settings.prefix}",
            endpoint_url=settings.endpoint_url,
            options=options,
            read_only=self.read_only,
        )
        if not isinstance(store, FsspecStore):
            raise ConfigError(f"The storage {storage.name} is not in a cloud.")
        store.call_timeout_s = self.call_timeout_s
        store.upload_records = self.upload_records
        return store


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
