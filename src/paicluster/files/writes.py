"""Write operations: create, replace, append, concat, truncate."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from paicluster.files.append_journal import AppendJournal
from paicluster.files.atomic_io import rename_noreplace
from paicluster.files.directories import (
    FILE_MODE,
    FOLDER_MODE,
    check_may_add,
    check_removable,
    inherit_ownership,
    make_folders,
)
from paicluster.files.errors import disk_errors, exists, no_file, storage_failure, unsupported
from paicluster.files.namespace import Inode, Namespace, PathLookup, open_file, open_folder
from paicluster.files.ownership import SUPERUSER, Ownership, write_ownership
from paicluster.files.paths import join_path, split_path
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.staging import JOURNAL, StagedFile, StagingArea
from paicluster.files.usage import Charge, freed_bytes
from paiprotocol.errors import PaiError

# Serialise changes of a file in place, and concat. A few locks serve all files.
_LOCKS = [threading.Lock() for _ in range(64)]
_COPY_BYTES = 1 << 20
_NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


class FileWriter:
    """Creates, replaces and changes files of a namespace."""

    def __init__(self, namespace: Namespace, area: StagingArea, *, sync: bool):
        self._namespace = namespace
        self._area = area
        # fsync before a commit is acknowledged.
        self._sync = sync
        self._journal = AppendJournal(area.folder(JOURNAL))
        self._undo_interrupted()

    def stage(
        self, path: str, user: StorageUser, *, overwrite: bool, mode: int | None, parents: bool, key: str
    ) -> StagedFile:
        with self._namespace.look_up(path, user) as lookup:
            self._check_may_write(lookup, user, overwrite=overwrite, parents=parents)

        def finish(staged: StagedFile) -> None:
            with disk_errors(path), self._namespace.look_up(path, user) as lookup:
                self._check_may_write(lookup, user, overwrite=overwrite, parents=parents)
                self._publish_at(
                    staged, lookup, user, overwrite=overwrite, mode=FILE_MODE if mode is None else mode
                )
                self._release_replaced(lookup)

        return self._area.begin(path, finish, user.name, key)

    def stage_append(self, path: str, user: StorageUser) -> StagedFile:
        with self._namespace.look_up(path, user) as lookup:
            _check_writable(lookup, user)

        def finish(staged: StagedFile) -> None:
            with disk_errors(path), self._locked(path, user) as inode:
                self._append(inode, staged)

        return self._area.begin(path, finish, user.name)

    def concat(self, path: str, sources: Sequence[str], user: StorageUser) -> None:
        """Append the sources to a file in order and delete them. All or nothing."""
        if len({split_path(source) for source in (path, *sources)}) <= len(sources) or not sources:
            raise unsupported(
                "concat needs at least one source; the target and each source may be listed only once."
            )
        with self._namespace.look_up(path, user) as lookup:
            seen = {path: _identity(_check_writable(lookup, user).status)}
        for source in sources:
            with self._namespace.look_up(source, user) as lookup:
                seen[source] = _identity(self._check_movable(lookup, user).status)

        def finish(staged: StagedFile) -> None:
            with disk_errors(path), self._namespace.look_up(path, user) as lookup:
                ownership = _check_unchanged(_check_writable(lookup, user), seen[path]).ownership
                self._publish(staged, lookup.parent(), lookup.name, ownership, overwrite=True)
                self._release_replaced(lookup)

        with ExitStack() as locks:
            # Concurrent appends to any of these files would be lost. Locked in a fixed order, to avoid
            # deadlock.
            for index in sorted({inode % len(_LOCKS) for _, inode in seen.values()}):
                locks.enter_context(_LOCKS[index])
            staged = self._area.begin(path, finish, user.name)
            try:
                with disk_errors(path), self._namespace.look_up(path, user) as lookup:
                    _copy_to_end(_check_unchanged(_check_writable(lookup, user), seen[path]), staged)
                for source in sources:
                    with disk_errors(source), self._namespace.look_up(source, user) as lookup:
                        _copy_to_end(
                            _check_unchanged(self._check_movable(lookup, user), seen[source]), staged
                        )
            except BaseException:
                staged.abandon()
                raise
            staged.commit()
            for source in sources:
                with disk_errors(source), self._namespace.look_up(source, user) as lookup:
                    # Delete only the file that was copied: a new file of that name is another one.
                    if lookup.inode is not None and _identity(lookup.inode.status) == seen[source]:
                        self._check_movable(lookup, user)
                        os.unlink(lookup.name, dir_fd=lookup.parent().fd)
                        self._release_replaced(lookup)

    def _release_replaced(self, lookup: PathLookup) -> None:
        """The file that was at a path is replaced or deleted: its bytes count no longer."""
        if lookup.inode is not None:
            self._area.usage.release(lookup.inode.ownership.owner, freed_bytes(lookup.inode.status))

    def truncate(self, path: str, user: StorageUser, length: int) -> None:
        with disk_errors(path), self._locked(path, user) as inode:
            fd = open_file(inode, os.O_WRONLY)
            try:
                size = os.fstat(fd).st_size
                if length > size:
                    raise unsupported(
                        "Cannot truncate to a larger file size. "
                        f"Current size: {size}, truncate size: {length}."
                    )
                os.ftruncate(fd, length)
                self._area.usage.release(inode.ownership.owner, size - length)
            finally:
                os.close(fd)

    def set_size(self, path: str, user: StorageUser, size: int) -> None:
        """Create a file of this size without content, or give a file this size and keep what fits of it."""
        with self._namespace.look_up(path, user) as lookup:
            exists_already = lookup.inode is not None and not lookup.inode.is_folder
        if not exists_already:
            staged = self.stage(path, user, overwrite=False, mode=None, parents=False, key="")
            try:
                staged.reserve(size)
                with disk_errors(path):
                    os.ftruncate(staged.fd, size)
            except BaseException:
                staged.abandon()
                raise
            staged.commit()
            return
        with self._changed_in_place(path, user) as (fd, inode, charge):
            before = os.fstat(fd).st_size
            charge.grow(fd, max(0, size - before))
            os.ftruncate(fd, size)
            self._area.usage.release(inode.ownership.owner, max(0, before - size))

    def write_at(self, path: str, user: StorageUser, offset: int, data: bytes | memoryview) -> None:
        """Write into an existing file; its other bytes stay. Readers see each byte as it was or as it is."""
        with self._changed_in_place(path, user) as (fd, _, charge):
            charge.grow(fd, max(0, offset + len(data) - os.fstat(fd).st_size))
            remaining = memoryview(data)
            while remaining:
                written = os.pwrite(fd, remaining, offset)
                remaining, offset = remaining[written:], offset + written
            if self._sync:
                os.fsync(fd)

    @contextmanager
    def _changed_in_place(self, path: str, user: StorageUser) -> Iterator[tuple[int, Inode, Charge]]:
        """An open file that no other change in place touches meanwhile, and the charge of its new bytes."""
        with disk_errors(path), self._locked(path, user) as inode:
            charge = Charge(self._area.usage, inode.ownership.owner, path)
            fd = open_file(inode, os.O_RDWR)
            try:
                yield fd, inode, charge
                charge.keep()
            except BaseException:
                charge.release()
                raise
            finally:
                os.close(fd)

    @contextmanager
    def _locked(self, path: str, user: StorageUser) -> Iterator[Inode]:
        """A file to be changed in place, locked against other such changes."""
        while True:
            with self._namespace.look_up(path, user) as lookup:
                inode = _check_writable(lookup, user)
                with lock_of(inode):
                    now = os.stat(lookup.name, dir_fd=lookup.parent().fd, follow_symlinks=False)
                    # The previous lock holder may have replaced the file: then look up the new one.
                    if _identity(now) != _identity(inode.status):
                        continue
                    if now.st_nlink <= 1:
                        yield inode
                        return
                    self._unshare(lookup, inode)

    def _unshare(self, lookup: PathLookup, inode: Inode) -> None:
        """Give a file bytes of its own: a linked copy of it must not change with it."""

        def finish(staged: StagedFile) -> None:
            self._publish(staged, lookup.parent(), lookup.name, inode.ownership, overwrite=True)

        staged = self._area.begin(lookup.path, finish, inode.ownership.owner)
        try:
            _copy_all(inode, staged)
        except BaseException:
            staged.abandon()
            raise
        staged.commit()

    @contextmanager
    def place_for(self, path: str, user: StorageUser) -> Iterator[tuple[Inode, Inode | None]]:
        """The folder into which a file of this path may be renamed, created if needed, and the old file."""
        with disk_errors(path), self._namespace.look_up(path, user) as lookup:
            self._check_may_write(lookup, user, overwrite=True, parents=True)
            with self._folder_of(lookup, user) as folder:
                yield folder, lookup.inode

    def copy_to(self, inode: Inode, path: str, user: StorageUser) -> None:
        """Copy a file to a path; an old file there is replaced, missing folders are created."""
        staged = self.stage(path, user, overwrite=True, mode=None, parents=True, key="")
        try:
            with disk_errors(path):
                _copy_all(inode, staged)
        except BaseException:
            staged.abandon()
            raise
        staged.commit()

    def _check_may_write(
        self, lookup: PathLookup, user: StorageUser, *, overwrite: bool, parents: bool
    ) -> None:
        if lookup.inode is not None:
            if lookup.inode.is_folder:
                raise exists(lookup.path, " as a directory")
            if not overwrite:
                raise exists(lookup.path)
            folder = lookup.parent()
            folder.check_access(user, Access.WRITE)
            lookup.inode.check_access(user, Access.WRITE)
            check_removable(user, folder, lookup.inode)
            return
        folder = lookup.parent()
        if len(lookup.missing) == 1:
            folder.check_access(user, Access.WRITE)
        elif not parents:
            raise no_file(join_path(lookup.names[:-1]))
        else:
            check_may_add(self._namespace, folder, lookup.missing[0], user)

    def _check_movable(self, lookup: PathLookup, user: StorageUser) -> Inode:
        """The file, if the user may move its content elsewhere."""
        inode = lookup.file()
        inode.check_access(user, Access.READ)
        folder = lookup.parent()
        folder.check_access(user, Access.WRITE)
        check_removable(user, folder, inode)
        return inode

    def _publish_at(
        self, staged: StagedFile, lookup: PathLookup, user: StorageUser, *, overwrite: bool, mode: int
    ) -> None:
        with self._folder_of(lookup, user) as folder:
            ownership = inherit_ownership(folder.ownership, user, mode, is_folder=False)
            self._publish(staged, folder, lookup.name, ownership, overwrite=overwrite)

    @contextmanager
    def _folder_of(self, lookup: PathLookup, user: StorageUser) -> Iterator[Inode]:
        """The folder of a path, created if it is missing."""
        if len(lookup.missing) <= 1:
            yield lookup.parent()
            return
        folder = make_folders(self._namespace, lookup, lookup.missing[:-1], user, FOLDER_MODE)
        try:
            yield folder
        finally:
            os.close(folder.fd)

    def _publish(
        self, staged: StagedFile, folder: Inode, name: str, ownership: Ownership, *, overwrite: bool
    ) -> None:
        write_ownership(staged.fd, ownership, has_xattrs=self._namespace.has_xattrs)
        if self._sync:
            os.fsync(staged.fd)
        if overwrite:
            os.rename(staged.name, name, src_dir_fd=staged.folder_fd, dst_dir_fd=folder.fd)
        else:
            rename_noreplace(staged.folder_fd, staged.name, folder.fd, name)
        if self._sync:
            fd = open_folder(folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _append(self, inode: Inode, staged: StagedFile) -> None:
        size = staged.size
        if not size:
            return
        fd = open_file(inode, os.O_RDWR)
        try:
            before = os.fstat(fd).st_size
            entry = self._journal.write(inode.path, inode.status.st_ino, before)
            try:
                _copy(staged.fd, fd, size, before)
                if self._sync:
                    os.fsync(fd)
            except BaseException:
                os.ftruncate(fd, before)
                raise
            finally:
                self._journal.remove(entry)
        finally:
            os.close(fd)

    def _undo_interrupted(self) -> None:
        """Truncate files to which a crashed server had appended only a part."""
        root = StorageUser(SUPERUSER, admin=True)
        for entry in self._journal.read_all():
            try:
                with disk_errors(entry.path), self._namespace.look_up(entry.path, root) as lookup:
                    inode = lookup.inode
                    if inode is not None and inode.status.st_ino == entry.inode:
                        os.truncate(inode.on_disk, min(entry.length, inode.status.st_size))
            except PaiError:
                # The path does not exist any more.
                pass
            self._journal.remove(entry)


def _check_writable(lookup: PathLookup, user: StorageUser) -> Inode:
    inode = lookup.file()
    inode.check_access(user, Access.WRITE)
    return inode


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _check_unchanged(inode: Inode, identity: tuple[int, int]) -> Inode:
    if _identity(inode.status) != identity:
        raise storage_failure(f"{inode.path} was replaced during concat. Try again.")
    return inode


def lock_of(inode: Inode) -> threading.Lock:
    return _LOCKS[inode.status.st_ino % len(_LOCKS)]


def _copy_all(inode: Inode, staged: StagedFile) -> None:
    """Copy a file that stays where it is: unlike those of `concat`, the bytes of both count."""
    fd = open_file(inode, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        staged.grow(size)
        _copy(fd, staged.fd, size, 0)
    finally:
        os.close(fd)


def _copy_to_end(inode: Inode, staged: StagedFile) -> None:
    fd = open_file(inode, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        staged.grow_by_copy(size)
        _copy(fd, staged.fd, size, staged.size)
    finally:
        os.close(fd)


def _copy(source: int, target: int, size: int, at: int) -> None:
    """Copy the first ``size`` bytes of a file to ``at`` in another, in the kernel where that is supported."""
    done = 0
    while done < size:
        try:
            count = os.copy_file_range(source, target, size - done, done, at + done)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            count = os.pwrite(target, os.pread(source, min(_COPY_BYTES, size - done), done), at + done)
        if not count:
            raise OSError(errno.EIO, "a file was truncated while it was copied")
        done += count
