"""How files come in: made, replaced, appended to, put together, cut short."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from openpaisdk.errors import PaiError
from paicluster.files import ownership
from paicluster.files.append_journal import Journal
from paicluster.files.directories import (
    FILE_MODE,
    FOLDER_MODE,
    check_may_add,
    check_removable,
    make_folders,
    record_for,
)
from paicluster.files.errors import disk_errors, exists, failed, no_file, unsupported
from paicluster.files.namespace import Inode, Namespace, PathLookup, open_file, open_folder
from paicluster.files.ownership import SUPERUSER, Ownership
from paicluster.files.paths import names_of, text_of
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.renaming import rename_noreplace
from paicluster.files.staging import JOURNAL, Staged, StagingArea

# Whatever changes a file in place, and putting files together, takes turns. A few locks serve all files.
_LOCKS = [threading.Lock() for _ in range(64)]
_PIECE = 1 << 20
_NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


class FileWriter:
    def __init__(self, tree: Namespace, area: StagingArea, *, sync: bool):
        self._tree = tree
        self._area = area
        # Whether what was committed is on the disk itself before anybody is told so.
        self._sync = sync
        self._journal = Journal(area.folder(JOURNAL))
        self._undo_interrupted()

    def stage(
        self, path: str, who: StorageUser, *, overwrite: bool, mode: int | None, parents: bool, key: str
    ) -> Staged:
        with self._tree.find(path, who) as spot:
            self._refuse_unless_may_write(spot, who, overwrite=overwrite, parents=parents)

        def finish(staged: Staged) -> None:
            with disk_errors(path), self._tree.find(path, who) as spot:
                self._refuse_unless_may_write(spot, who, overwrite=overwrite, parents=parents)
                self._put(staged, spot, who, overwrite=overwrite, mode=FILE_MODE if mode is None else mode)

        return self._area.begin(path, finish, key)

    def stage_append(self, path: str, who: StorageUser) -> Staged:
        with self._tree.find(path, who) as spot:
            _writable(spot, who)

        def finish(staged: Staged) -> None:
            with disk_errors(path), self._held(path, who) as node:
                self._append(node, staged)

        return self._area.begin(path, finish)

    def concat(self, path: str, sources: Sequence[str], who: StorageUser) -> None:
        """Put other files at the end of one, in order; they are gone then. All of it or nothing."""
        if len({names_of(each) for each in (path, *sources)}) <= len(sources) or not sources:
            raise unsupported("concat: a file is put together with others, at least one, and each once.")
        with self._tree.find(path, who) as spot:
            seen = {path: _identity(_writable(spot, who).status)}
        for source in sources:
            with self._tree.find(source, who) as spot:
                seen[source] = _identity(self._check_movable(spot, who).status)

        def finish(staged: Staged) -> None:
            with disk_errors(path), self._tree.find(path, who) as spot:
                record = _same(_writable(spot, who), seen[path]).record
                self._take_place(staged, spot.parent(), spot.name, record, overwrite=True)

        with ExitStack() as held:
            # What is appended to any of them meanwhile would be lost. Always in one order: no two wait for
            # each other.
            for number in sorted({inode % len(_LOCKS) for _, inode in seen.values()}):
                held.enter_context(_LOCKS[number])
            staged = self._area.begin(path, finish)
            try:
                with disk_errors(path), self._tree.find(path, who) as spot:
                    _copy_to_end(_same(_writable(spot, who), seen[path]), staged)
                for source in sources:
                    with disk_errors(source), self._tree.find(source, who) as spot:
                        _copy_to_end(_same(self._check_movable(spot, who), seen[source]), staged)
            except BaseException:
                staged.abandon()
                raise
            staged.commit()
            for source in sources:
                with disk_errors(source), self._tree.find(source, who) as spot:
                    # Only what was copied goes: a new file of that name is another one.
                    if spot.node is not None and _identity(spot.node.status) == seen[source]:
                        self._check_movable(spot, who)
                        os.unlink(spot.name, dir_fd=spot.parent().fd)

    def truncate(self, path: str, who: StorageUser, length: int) -> None:
        with disk_errors(path), self._held(path, who) as node:
            fd = open_file(node, os.O_WRONLY)
            try:
                size = os.fstat(fd).st_size
                if length > size:
                    raise unsupported(
                        "Cannot truncate to a larger file size. "
                        f"Current size: {size}, truncate size: {length}."
                    )
                os.ftruncate(fd, length)
            finally:
                os.close(fd)

    @contextmanager
    def _held(self, path: str, who: StorageUser) -> Iterator[Inode]:
        """A file to be changed in place, while nobody else does that."""
        while True:
            with self._tree.find(path, who) as spot:
                node = _writable(spot, who)
                with _lock_of(node):
                    now = os.stat(spot.name, dir_fd=spot.parent().fd, follow_symlinks=False)
                    # Whoever had it before us may have put another in its place: then that one is meant.
                    if _identity(now) == _identity(node.status):
                        yield node
                        return

    def _refuse_unless_may_write(
        self, spot: PathLookup, who: StorageUser, *, overwrite: bool, parents: bool
    ) -> None:
        if spot.node is not None:
            if spot.node.folder:
                raise exists(spot.path, " as a directory")
            if not overwrite:
                raise exists(spot.path)
            folder = spot.parent()
            folder.refuse_unless(who, Access.WRITE)
            spot.node.refuse_unless(who, Access.WRITE)
            check_removable(who, folder, spot.node)
            return
        folder = spot.parent()
        if len(spot.missing) == 1:
            folder.refuse_unless(who, Access.WRITE)
        elif not parents:
            raise no_file(text_of(spot.names[:-1]))
        else:
            check_may_add(self._tree, folder, spot.missing[0], who)

    def _check_movable(self, spot: PathLookup, who: StorageUser) -> Inode:
        """A file whose content may be moved elsewhere."""
        node = spot.file()
        node.refuse_unless(who, Access.READ)
        folder = spot.parent()
        folder.refuse_unless(who, Access.WRITE)
        check_removable(who, folder, node)
        return node

    def _put(self, staged: Staged, spot: PathLookup, who: StorageUser, *, overwrite: bool, mode: int) -> None:
        folder, made = spot.parent(), -1
        if len(spot.missing) > 1:
            folder = make_folders(self._tree, spot, spot.missing[:-1], who, FOLDER_MODE)
            made = folder.fd
        try:
            record = record_for(folder.record, who, mode, is_folder=False)
            self._take_place(staged, folder, spot.name, record, overwrite=overwrite)
        finally:
            if made >= 0:
                os.close(made)

    def _take_place(
        self, staged: Staged, folder: Inode, name: str, record: Ownership, *, overwrite: bool
    ) -> None:
        ownership.write(staged.fd, record, keeps=self._tree.keeps_records)
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

    def _append(self, node: Inode, staged: Staged) -> None:
        size = staged.size
        if not size:
            return
        fd = open_file(node, os.O_RDWR)
        try:
            before = os.fstat(fd).st_size
            note = self._journal.write(node.path, node.status.st_ino, before)
            try:
                _copy(staged.fd, fd, size, before)
                if self._sync:
                    os.fsync(fd)
            except BaseException:
                os.ftruncate(fd, before)
                raise
            finally:
                self._journal.remove(note)
        finally:
            os.close(fd)

    def _undo_interrupted(self) -> None:
        """A server that died in the middle of an append left a part of it: take that off again."""
        root = StorageUser(SUPERUSER, admin=True)
        for note in self._journal.left():
            try:
                with disk_errors(note.path), self._tree.find(note.path, root) as spot:
                    node = spot.node
                    if node is not None and node.status.st_ino == note.inode:
                        os.truncate(node.on_disk, min(note.length, node.status.st_size))
            except PaiError:
                # The path leads nowhere any more.
                pass
            self._journal.remove(note)


def _writable(spot: PathLookup, who: StorageUser) -> Inode:
    node = spot.file()
    node.refuse_unless(who, Access.WRITE)
    return node


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _same(node: Inode, seen: tuple[int, int]) -> Inode:
    if _identity(node.status) != seen:
        raise failed(f"{node.path} was replaced while files were put together: try again.")
    return node


def _lock_of(node: Inode) -> threading.Lock:
    return _LOCKS[node.status.st_ino % len(_LOCKS)]


def _copy_to_end(node: Inode, staged: Staged) -> None:
    fd = open_file(node, os.O_RDONLY)
    try:
        _copy(fd, staged.fd, os.fstat(fd).st_size, staged.size)
    finally:
        os.close(fd)


def _copy(source: int, target: int, size: int, at: int) -> None:
    """``size`` bytes from the beginning of one file to ``at`` in the other, in the kernel where it can."""
    done = 0
    while done < size:
        try:
            count = os.copy_file_range(source, target, size - done, done, at + done)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            count = os.pwrite(target, os.pread(source, min(_PIECE, size - done), done), at + done)
        if not count:
            raise OSError(errno.EIO, "a file became shorter while it was copied")
        done += count
