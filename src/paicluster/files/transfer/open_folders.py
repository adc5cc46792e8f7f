"""Cache of open folders for reading or writing many of their files: each folder is looked up once."""

from __future__ import annotations

import os
from types import TracebackType

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.directories import FOLDER_MODE, make_folders
from paicluster.files.errors import disk_errors, no_file, not_a_folder
from paicluster.files.namespace import Inode, Namespace
from paicluster.files.paths import Names, join_path

_MAX_OPEN = 64


class OpenFolderCache:
    """Open folders of one request. The user's access to a folder is checked once, when it is opened."""

    def __init__(self, storage: Storage, user: StorageUser, access: Access):
        self.namespace: Namespace = storage.namespace
        self.user = user
        self._access = access
        self._open: dict[Names, Inode] = {}

    def get(self, names: Names, *, create: bool = False) -> Inode:
        folder = self._open.get(names)
        if folder is None:
            if len(self._open) >= _MAX_OPEN:
                self.close()
            folder = self._open[names] = self._open_folder(names, create)
        return folder

    def __contains__(self, names: Names) -> bool:
        """Whether the folder is open."""
        return names in self._open

    def _open_folder(self, names: Names, make: bool) -> Inode:
        path = join_path(names)
        with disk_errors(path), self.namespace.look_up(path, self.user) as lookup:
            if lookup.inode is None:
                if not make:
                    raise no_file(path)
                return make_folders(self.namespace, lookup, lookup.missing, self.user, FOLDER_MODE)
            inode = lookup.inode
            if not inode.is_folder:
                raise not_a_folder(path)
            inode.check_access(self.user, self._access)
            return Inode(os.dup(inode.fd), inode.status, inode.ownership, inode.names)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1].fd)

    def __enter__(self) -> OpenFolderCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
