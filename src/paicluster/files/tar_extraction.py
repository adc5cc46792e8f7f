"""Extraction of a tar archive to a folder: extracted in the staging area, then published in one rename.

Such a folder has a mark that names what it was extracted for. Only folders with a mark are replaced or
removed here: a folder that a user created stays, whatever its name.
"""

from __future__ import annotations

import errno
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paicluster.files.atomic_io import rename_noreplace
from paicluster.files.directories import FOLDER_MODE, inherit_ownership, make_folders
from paicluster.files.errors import disk_errors, not_a_folder, storage_failure
from paicluster.files.namespace import Inode, Namespace, PathLookup
from paicluster.files.ownership import SUPERUSER, Ownership, write_ownership
from paicluster.files.paths import Names, join_path, split_path
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import STAGED
from paicluster.files.storage import Storage
from paiprotocol.errors import PaiError
from pairuntime.local_files.remove_tree import remove_tree
from pairuntime.transport.bounded_tar import BoundedTarFile

MARK = "user.pai.made-for"
# Bytes copied between two checks for cancellation.
_COPY_BYTES = 64 << 20
# Each member becomes a file or a folder.
_MAX_MEMBERS = 500_000
_NO_MARK = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ExtractedFolder:
    """Folder extracted in the staging area. ``publish`` or ``discard`` it; from one thread at a time."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        user: StorageUser,
        stop: Callable[[], bool] = lambda: False,
        *,
        max_members: int = _MAX_MEMBERS,
    ):
        """``path`` is the target, ``user`` the owner. Extraction is cancelled when ``stop()`` is true."""
        self._storage = storage
        self._names = split_path(path)
        self._user = user
        self._stop = stop
        self._max_members = max_members
        self._name = secrets.token_hex(16)
        self._staging_fd = storage.staging_area.folder(STAGED)
        # Ownership of the extracted folders; below a team folder `extract` replaces it.
        self._folder_ownership = Ownership(user.name, user.name, FOLDER_MODE)

    @property
    def path(self) -> str:
        return join_path(self._names)

    def extract(self, archive: Path) -> None:
        """Extract a tar. Skips links, which the storage does not have, and names that it does not allow."""
        self._storage.staging_area.active.add(self._name)
        with disk_errors(self.path):
            with self._storage.namespace.look_up(join_path(self._names[:-1]), self._user) as lookup:
                parent = lookup.inode or lookup.parent()
                self._folder_ownership = inherit_ownership(
                    parent.ownership, self._user, FOLDER_MODE, is_folder=True
                )
            os.mkdir(self._name, 0o700, dir_fd=self._staging_fd)
            root = os.open(self._name, _FOLDER, dir_fd=self._staging_fd)
            try:
                with archive.open("rb", buffering=0) as file:
                    # `errorlevel` is for extraction, which this module does itself.
                    tar = BoundedTarFile(fileobj=file, max_members=self._max_members, errorlevel=0)
                    self._extract_members(root, tar, file.fileno())
            except (tarfile.TarError, ValueError, OverflowError) as error:
                # The archive comes from a client: its headers may contain anything.
                raise storage_failure(f"Cannot extract the tar archive to {self.path}: {error}.") from None
            finally:
                os.close(root)

    def _extract_members(self, root: int, archive: BoundedTarFile, archive_fd: int) -> None:
        # No other process writes to this folder and no link is created in it: a path below it stays below it.
        created: set[Names] = {()}
        for member in archive.one_by_one():
            self._check_cancelled()
            names = self._names_in(member.name)
            if not names or member.issparse() or not (member.isreg() or member.isdir()):
                continue
            for i in range(1, len(names) if member.isreg() else len(names) + 1):
                if names[:i] not in created:
                    folder = "/".join(names[:i])
                    os.mkdir(folder, 0o700, dir_fd=root)
                    write_ownership(
                        f"/proc/self/fd/{root}/{folder}", self._folder_ownership, has_xattrs=self._has_xattrs
                    )
                    created.add(names[:i])
            if member.isreg():
                self._write(root, "/".join(names), archive_fd, member)

    def _names_in(self, name: str) -> Names:
        try:
            return split_path(f"{self.path}/{name}")[len(self._names) :]
        except PaiError:
            return ()

    def _write(self, root: int, name: str, archive: int, member: tarfile.TarInfo) -> None:
        try:
            fd = os.open(name, _NEW, 0o600, dir_fd=root)
        except FileExistsError:
            # A tar may contain a file twice: the later one wins.
            os.unlink(name, dir_fd=root)
            fd = os.open(name, _NEW, 0o600, dir_fd=root)
        try:
            at, end = member.offset_data, member.offset_data + member.size
            while at < end:
                self._check_cancelled()
                done = os.sendfile(fd, archive, at, min(_COPY_BYTES, end - at))
                if not done:
                    raise OSError(errno.EIO, "the tar ends too early")
                at += done
            ownership = inherit_ownership(self._folder_ownership, self._user, member.mode, is_folder=False)
            write_ownership(fd, ownership, has_xattrs=self._has_xattrs)
            os.utime(fd, (member.mtime, member.mtime))
        finally:
            os.close(fd)

    def _check_cancelled(self) -> None:
        if self._stop():
            raise storage_failure(f"Extraction of {self.path} was cancelled.")

    @property
    def _has_xattrs(self) -> bool:
        return self._storage.namespace.has_xattrs

    def publish(self, mark: str) -> None:
        """Move it to its path. Replaces an older folder with a mark, and nothing else."""
        storage, namespace = self._storage, self._storage.namespace
        storage.provision(self._user)
        parent = join_path(self._names[:-1])
        with disk_errors(self.path), namespace.look_up(parent, self._user) as lookup:
            created_fd = -1
            if lookup.inode is None:
                folder = make_folders(namespace, lookup, lookup.missing, self._user, FOLDER_MODE)
                created_fd = folder.fd
            else:
                folder = lookup.inode
            try:
                if not folder.is_folder:
                    raise not_a_folder(parent)
                folder.check_access(self._user, Access.WRITE | Access.EXECUTE)
                self._rename_into(folder, mark)
            finally:
                if created_fd >= 0:
                    os.close(created_fd)

    def _rename_into(self, folder: Inode, mark: str) -> None:
        name = self._names[-1]
        staged = f"/proc/self/fd/{self._staging_fd}/{self._name}"
        write_ownership(staged, self._folder_ownership, has_xattrs=self._has_xattrs)
        if self._has_xattrs:
            os.setxattr(staged, MARK, mark.encode())
        if _mark_of(self._storage.namespace, folder, name) is not None:
            self._storage.staging_area.discard(folder.fd, name)
        rename_noreplace(self._staging_fd, self._name, folder.fd, name)

    def discard(self) -> None:
        """Delete the staging folder. Has no effect after `publish`."""
        self._storage.staging_area.active.discard(self._name)
        if not self._storage.staging_area.closed:
            try:
                remove_tree(self._staging_fd, self._name)
            except OSError:
                pass  # already deleted, or deleted at the next start


def is_marked(storage: Storage, path: str, mark: str) -> bool:
    """Whether the folder exists and has this mark."""
    with _parent_of_marked(storage, path, mark) as lookup:
        return lookup is not None


def remove_marked(storage: Storage, path: str, mark: str) -> bool:
    """Delete a folder with this mark, and its parent if that is empty then."""
    with _parent_of_marked(storage, path, mark) as lookup:
        if lookup is None or lookup.inode is None:
            return False
        storage.staging_area.discard(lookup.inode.fd, split_path(path)[-1])
        if lookup.names:
            try:
                os.rmdir(lookup.name, dir_fd=lookup.parent().fd)
            except OSError:
                pass  # not empty
        return True


@contextmanager
def _parent_of_marked(storage: Storage, path: str, mark: str) -> Iterator[PathLookup | None]:
    """Parent of the folder with this mark; None when there is none."""
    names = split_path(path)
    root = StorageUser(SUPERUSER, admin=True)
    with disk_errors(path), storage.namespace.look_up(join_path(names[:-1]), root) as lookup:
        folder = lookup.inode
        matches = (
            folder is not None and folder.is_folder and _mark_of(storage.namespace, folder, names[-1]) == mark
        )
        yield lookup if matches else None


def _mark_of(namespace: Namespace, folder: Inode, name: str) -> str | None:
    inode = namespace.child(folder, name)
    if inode is None:
        return None
    try:
        return os.getxattr(inode.on_disk, MARK).decode() if inode.is_folder else None
    except OSError as error:
        if error.errno not in _NO_MARK:
            raise
        return None
    finally:
        os.close(inode.fd)
