"""Unpublished folder: filled in the staging area, then published with all its files in one rename.

In a visible folder a file must be created unnamed and linked when it is complete. In an unpublished folder it
gets its name at once, which saves a third of the work.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.atomic_io import rename_noreplace
from paicluster.files.directories import FOLDER_MODE, inherit_ownership
from paicluster.files.namespace import Inode, Namespace
from paicluster.files.ownership import Ownership, write_ownership
from paicluster.files.paths import Names, join_path
from paicluster.files.permissions import is_allowed
from paicluster.files.staging import STAGED
from pairuntime.local_files.remove_tree import remove_tree

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpublishedFolder:
    """Use `create_file`, then `publish`; always `close` it."""

    def __init__(self, storage: Storage, names: Names, parent: int, ownership: Ownership):
        self.names = names
        self._area = storage.staging_area
        self._parent = parent
        self._staging_name = secrets.token_hex(16)
        self._area.active.add(self._staging_name)
        self._is_published = False
        staging = self._area.folder(STAGED)
        fd = -1
        try:
            os.mkdir(self._staging_name, 0o700, dir_fd=staging)
            fd = os.open(self._staging_name, _FOLDER, dir_fd=staging)
            write_ownership(fd, ownership, has_xattrs=storage.namespace.has_xattrs)
            self.inode = Inode(fd, os.fstat(fd), ownership, names)
        except BaseException:
            if fd >= 0:
                os.close(fd)
            self._discard()
            raise

    def create_file(self, name: str, fill: Callable[[int], None]) -> None:
        """Create a file and let ``fill`` write it; deleted again if that fails."""
        fd = os.open(name, _NEW, 0o600, dir_fd=self.inode.fd)
        try:
            fill(fd)
        except BaseException:
            os.unlink(name, dir_fd=self.inode.fd)
            raise
        finally:
            os.close(fd)

    def publish(self) -> None:
        """Rename it to its path; FileExistsError when the folder was created meanwhile."""
        rename_noreplace(self._area.folder(STAGED), self._staging_name, self._parent, self.names[-1])
        self._is_published = True

    def close(self) -> None:
        os.close(self.inode.fd)
        self._discard()

    def _discard(self) -> None:
        os.close(self._parent)
        if not self._is_published and not self._area.closed:
            try:
                remove_tree(self._area.folder(STAGED), self._staging_name)
            except OSError:
                pass  # already deleted, or deleted at the next start
        self._area.active.discard(self._staging_name)


def open_unpublished(storage: Storage, user: StorageUser, names: Names) -> UnpublishedFolder | None:
    """None when the folder exists, its parent does not, or special rules apply to it."""
    if len(names) < 2:
        return None
    namespace: Namespace = storage.namespace
    with namespace.look_up(join_path(names), user) as lookup:
        parent = lookup.parent_inode
        if len(lookup.missing) != 1 or parent is None or not parent.is_folder:
            return None
        if not is_allowed(user, parent.ownership, Access.WRITE | Access.EXECUTE):
            return None
        ownership = inherit_ownership(parent.ownership, user, FOLDER_MODE, is_folder=True)
        return UnpublishedFolder(storage, names, os.dup(parent.fd), ownership)
