"""A folder that is not there yet: its files are made where nobody sees them, and it appears with all of them.

A file in a folder that people see has to be made without a name and linked to it when it is whole. In here it
gets its name at once, which saves a third of the work.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from openpaisdk.fileio.remove_tree import remove_tree
from paicluster.files import Access, Storage, StorageUser, ownership
from paicluster.files.directories import FOLDER_MODE, record_for
from paicluster.files.namespace import Inode, Namespace
from paicluster.files.paths import Names, text_of
from paicluster.files.permissions import allowed
from paicluster.files.renaming import rename_noreplace
from paicluster.files.staging import STAGED

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpublishedFolder:
    """``put`` files in it, then ``place`` it; ``close`` it in any case."""

    def __init__(self, storage: Storage, names: Names, parent: int, record: ownership.Ownership):
        self.names = names
        self._area = storage.area
        self._parent = parent
        self._aside = secrets.token_hex(16)
        self._area.active.add(self._aside)
        self._is_placed = False
        staging = self._area.folder(STAGED)
        fd = -1
        try:
            os.mkdir(self._aside, 0o700, dir_fd=staging)
            fd = os.open(self._aside, _FOLDER, dir_fd=staging)
            ownership.write(fd, record, keeps=storage.tree.keeps_records)
            self.node = Inode(fd, os.fstat(fd), record, names)
        except BaseException:
            if fd >= 0:
                os.close(fd)
            self._forget()
            raise

    def put(self, name: str, fill: Callable[[int], None]) -> None:
        """A new file, which ``fill`` writes; it is gone again where that fails."""
        fd = os.open(name, _NEW, 0o600, dir_fd=self.node.fd)
        try:
            fill(fd)
        except BaseException:
            os.unlink(name, dir_fd=self.node.fd)
            raise
        finally:
            os.close(fd)

    def publish(self) -> None:
        """Where it belongs; FileExistsError when somebody else has made that folder meanwhile."""
        rename_noreplace(self._area.folder(STAGED), self._aside, self._parent, self.names[-1])
        self._is_placed = True

    def close(self) -> None:
        os.close(self.node.fd)
        self._forget()

    def _forget(self) -> None:
        os.close(self._parent)
        if not self._is_placed and not self._area.closed:
            try:
                remove_tree(self._area.folder(STAGED), self._aside)
            except OSError:
                pass  # gone, or gone with the next start
        self._area.active.discard(self._aside)


def fresh_folder(storage: Storage, who: StorageUser, names: Names) -> UnpublishedFolder | None:
    """None where the folder is there, or is not the only one missing, or has rules of its own."""
    if len(names) < 2:
        return None
    tree: Namespace = storage.tree
    with tree.find(text_of(names), who) as spot:
        parent = spot.parent_inode
        if len(spot.missing) != 1 or parent is None or not parent.folder:
            return None
        if not allowed(who, parent.record, Access.WRITE | Access.EXECUTE):
            return None
        record = record_for(parent.record, who, FOLDER_MODE, is_folder=True)
        return UnpublishedFolder(storage, names, os.dup(parent.fd), record)
