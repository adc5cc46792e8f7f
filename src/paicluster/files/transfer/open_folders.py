"""Folders of the storage held open while many of their files are read or written: each is looked up once."""

from __future__ import annotations

import os
from types import TracebackType

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.directories import FOLDER_MODE, make_folders
from paicluster.files.errors import disk_errors, no_file, not_a_folder
from paicluster.files.namespace import Inode, Namespace
from paicluster.files.paths import Names, text_of

_MOST = 64


class OpenFolderCache:
    """What ``who`` may do in a folder is asked when it is opened, for all that follows in one request."""

    def __init__(self, storage: Storage, who: StorageUser, need: Access):
        self.tree: Namespace = storage.tree
        self.who = who
        self._need = need
        self._open: dict[Names, Inode] = {}

    def get(self, names: Names, *, make: bool = False) -> Inode:
        found = self._open.get(names)
        if found is None:
            if len(self._open) >= _MOST:
                self.close()
            found = self._open[names] = self._opened(names, make)
        return found

    def __contains__(self, names: Names) -> bool:
        """Whether it is held open at the moment."""
        return names in self._open

    def _opened(self, names: Names, make: bool) -> Inode:
        path = text_of(names)
        with disk_errors(path), self.tree.find(path, self.who) as spot:
            if spot.node is None:
                if not make:
                    raise no_file(path)
                return make_folders(self.tree, spot, spot.missing, self.who, FOLDER_MODE)
            node = spot.node
            if not node.folder:
                raise not_a_folder(path)
            node.refuse_unless(self.who, self._need)
            return Inode(os.dup(node.fd), node.status, node.record, node.names)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1].fd)

    def __enter__(self) -> OpenFolderCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
