"""Copies of files and folders that share the bytes of the original until one of the two changes.

A copy is a hard link. Every write of the storage replaces a file or, where it changes one in place, gives it
bytes of its own first (`FileWriter`). So a copy costs neither time nor disk, and stays as it is.
"""

from __future__ import annotations

import errno
import os
import secrets

from paicluster.files.directories import FOLDER_MODE
from paicluster.files.errors import bad_path, disk_errors, exists, not_a_folder
from paicluster.files.namespace import Inode, Namespace, entries
from paicluster.files.namespace_ops import make_dirs
from paicluster.files.paths import join_path, split_path
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import STAGED, StagingArea
from paicluster.files.usage import freed_bytes
from paicluster.files.walk import walk
from paicluster.files.writes import FileWriter, lock_of

# The disk has no hard links or forbids this one, the file has too many already, or it has no name any more,
# because it was replaced or deleted meanwhile: then the bytes are copied.
_NO_LINK = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOENT)


class LinkedCopies:
    """Makes linked copies within one storage."""

    def __init__(self, namespace: Namespace, area: StagingArea, writer: FileWriter):
        self._namespace = namespace
        self._area = area
        self._writer = writer

    def copy_file(self, source: str, target: str, user: StorageUser) -> None:
        """Copy a file; an old file at ``target`` is replaced, missing folders are created."""
        if split_path(source) == split_path(target):
            return
        with disk_errors(source), self._namespace.look_up(source, user) as found:
            self._copy(found.file(), target, user)

    def copy_tree(self, source: str, target: str, user: StorageUser) -> None:
        """Copy a folder with everything in it to a path that does not exist.

        Where it contains the folder of the copy, that one is left out: it has other copies, and this one.
        """
        with disk_errors(source), self._namespace.look_up(source, user) as found:
            top = found.existing()
            if not top.is_folder:
                raise not_a_folder(source)
            with self._namespace.look_up(target, user) as there:
                if there.inode is not None:
                    raise exists(target)
            above = len(top.names)
            below = split_path(target)
            copies = below[:-1]
            if top.names == copies:
                raise bad_path(target, f"{source} cannot be copied into itself")

            def visit(folder: Inode) -> list[str]:
                folder.check_access(user, Access.READ | Access.EXECUTE)
                names = (*below, *folder.names[above:])
                make_dirs(self._namespace, join_path(names), user, FOLDER_MODE)
                left_out = copies[-1] if folder.names == copies[:-1] else None
                children = [
                    entry for entry in entries(folder, with_ownership=False) if entry.name != left_out
                ]
                for entry in children:
                    child = None if entry.is_folder else self._namespace.child(folder, entry.name)
                    if child is not None:
                        try:
                            self._copy(child, join_path((*names, entry.name)), user)
                        finally:
                            os.close(child.fd)
                return [entry.name for entry in children if entry.is_folder]

            walk(self._namespace, top, visit)

    def _copy(self, inode: Inode, target: str, user: StorageUser) -> None:
        inode.check_access(user, Access.READ)
        # A link has the owner of the file: of what belongs to others, the user gets a copy.
        if inode.ownership.owner != user.name or not self._link(inode, target, user):
            self._writer.copy_to(inode, target, user)

    def _link(self, inode: Inode, target: str, user: StorageUser) -> bool:
        """Link a file; False if the disk cannot."""
        name = secrets.token_hex(16)
        staged = self._area.folder(STAGED)
        # A link is as old as its file: without this it could be removed as a forgotten one.
        self._area.active.add(name)
        try:
            return self._rename_link(inode, name, staged, target, user)
        finally:
            self._area.active.discard(name)

    def _rename_link(self, inode: Inode, name: str, staged: int, target: str, user: StorageUser) -> bool:
        try:
            # Under the lock no change in place is under way. The path is that of the descriptor.
            with lock_of(inode):
                os.link(inode.on_disk, name, dst_dir_fd=staged)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        try:
            with self._writer.place_for(target, user) as (place, replaced):
                os.rename(name, target.rpartition("/")[2], src_dir_fd=staged, dst_dir_fd=place.fd)
                if replaced is not None:
                    self._area.usage.release(replaced.ownership.owner, freed_bytes(replaced.status))
        finally:
            # Also after a rename onto another name of the same file, which leaves both.
            try:
                os.unlink(name, dir_fd=staged)
            except FileNotFoundError:
                pass
        return True
