"""The cluster's storage as routes use it: threads for the disk, people for identities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from paicluster.auth.tokens import Identity
from paicluster.config.settings import Settings
from paicluster.files import Storage, StorageUser

P = ParamSpec("P")
T = TypeVar("T")

# Disks are waited for here and nowhere else, so that a slow one delays nothing but files.
_THREADS = 16
# Checksums read whole files, for hours if need be: they wait for each other, and nothing else for them.
_CHECKSUMS = 2


@dataclass(frozen=True, slots=True)
class FileService:
    storage: Storage
    # How clients reach us: what they are sent to comes from here and never from what they say.
    external_url: str
    # Whether `user.name` alone, without a token, says who somebody is.
    trust_user_name: bool = False
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "files"))
    checksums: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CHECKSUMS, "checksums"))

    async def run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Something that blocks on the disk."""
        if named:
            return await asyncio.get_running_loop().run_in_executor(
                self.threads, lambda: call(*arguments, **named)
            )
        return await asyncio.get_running_loop().run_in_executor(self.threads, call, *arguments)

    def close(self) -> None:
        self.checksums.shutdown(cancel_futures=True)
        self.threads.shutdown(cancel_futures=True)
        self.storage.close()


def open_files(settings: Settings, external_url: str) -> FileService:
    """The cluster's own storage: in the folder the settings name, else in the home."""
    own = next((one for one in settings.storages if one.kind == "own"), None)
    root = settings.home / "storage" if own is None or own.path is None else own.path
    storage = Storage(root) if own is None else Storage(root, read_only=own.read_only, groups=own.groups)
    return FileService(storage, external_url, settings.authentication.trust_user_name)


def storage_user(identity: Identity) -> StorageUser:
    """Whoever speaks, as the storage knows him. A job acts for its user, never as an administrator."""
    return StorageUser(identity.username, frozenset(identity.access.groups), identity.admin)
