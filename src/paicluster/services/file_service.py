"""File service: the cluster's storage for async callers, with thread pools for disk access."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from paicluster.auth.tokens import Identity
from paicluster.config.settings import Settings
from paicluster.files import Storage, StorageUser
from paicluster.files.transfer.fd_server import FdServer
from paicluster.files.transfer.range_hashes import RangeHashCache
from paicluster.files.transfer.upload_registry import UploadRegistry

P = ParamSpec("P")
T = TypeVar("T")

# All blocking disk access happens in these threads, so that a slow disk delays nothing but file operations.
_THREADS = 16
# Checksums read whole files, which can take hours: they have their own threads and delay only each other.
_CHECKSUM_THREADS = 2


class TransferState:
    """In-memory state of the transfer API for one storage."""

    def __init__(self, storage: Storage):
        self.uploads = UploadRegistry(storage)
        self.fd_server = FdServer(storage, self.uploads)
        self.range_hashes = RangeHashCache()


class FileService:
    """The cluster's own storage, the state of its transfers, and the threads that access it.

    ``external_url``: address of the server for tasks, and for redirects of requests that name no host.
    ``trust_user_name``: whether `user.name` alone, without a token, authenticates a user.
    """

    def __init__(self, storage: Storage, external_url: str, *, trust_user_name: bool) -> None:
        self.storage = storage
        self.external_url = external_url
        self.trust_user_name = trust_user_name
        self.transfers = TransferState(storage)
        self.threads = ThreadPoolExecutor(_THREADS, "files")
        self.checksum_threads = ThreadPoolExecutor(_CHECKSUM_THREADS, "checksums")

    async def run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a blocking call in a file thread."""
        if named:
            return await asyncio.get_running_loop().run_in_executor(
                self.threads, lambda: call(*arguments, **named)
            )
        return await asyncio.get_running_loop().run_in_executor(self.threads, call, *arguments)

    def close(self) -> None:
        self.checksum_threads.shutdown(cancel_futures=True)
        self.threads.shutdown(cancel_futures=True)
        self.storage.close()


def open_file_service(settings: Settings, external_url: str) -> FileService:
    """Open the cluster's own storage: in the folder of the settings, by default in the home."""
    own = next((one for one in settings.storages if one.kind == "own"), None)
    root = settings.home / "storage" if own is None or own.path is None else own.path
    authentication = settings.authentication
    storage = Storage(
        root,
        read_only=own is not None and own.read_only,
        groups=() if own is None else own.groups,
        open_root=authentication.open_root,
    )
    return FileService(storage, external_url, trust_user_name=authentication.trust_user_name)


def storage_user(identity: Identity) -> StorageUser:
    """Storage user of an identity. A job acts as its user, never as an administrator."""
    return StorageUser(identity.username, frozenset(identity.access.groups), identity.admin)
