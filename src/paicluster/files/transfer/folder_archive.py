"""Tar archive of a folder and everything below it that a user may read, in blocks, as it is on the disk now.

One folder and one file are open at a time, and nothing is kept of what was sent: memory does not grow with
the size of a tree. The size of a file is in front of its bytes, so what it grows by is left out.
"""

from __future__ import annotations

import itertools
import os
import tarfile
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.errors import disk_errors
from paicluster.files.namespace import Inode, entries
from paicluster.files.walk import walk_steps
from paiprotocol.errors import InvalidParameters, PaiError

LEFT_OUT = "not-included.txt"
"""File at the end of an archive that lists what could not be read; numbered where the folder has one."""
MAX_LISTED = 1000
"""Lines of that list, so that its size is bounded; the others are counted."""

_BLOCK_BYTES = 256 << 10
_LIST_ACCESS = Access.READ | Access.EXECUTE
# Until the year 2242: later times have no place in a header.
_MAX_TIME_S = 1 << 33

_Names = tuple[str, ...]


def check_folder(storage: Storage, path: str, user: StorageUser) -> None:
    """Raise PaiError unless it is a folder that the user may list."""
    with disk_errors(path), storage.namespace.look_up(path, user) as lookup:
        _check_listable(lookup.existing(), path, user)


def archive_blocks(storage: Storage, path: str, user: StorageUser, top: str) -> Iterator[bytes]:
    """Blocks of the archive; its names begin with ``top``."""
    left_out = _LeftOut()
    with disk_errors(path), storage.namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        _check_listable(inode, path, user)
        visited: list[_VisitedFolder] = []

        def visit(folder: Inode) -> list[str]:
            files: list[str] = []
            folders: list[str] = []
            below = folder.names[len(inode.names) :]
            try:
                folder.check_access(user, _LIST_ACCESS)
                for entry in entries(folder, with_ownership=False):
                    (folders if entry.is_folder else files).append(entry.name)
            except PaiError as error:
                left_out.add(below, error.message)
            if not below:
                left_out.choose_name({*files, *folders})
            visited.append(_VisitedFolder(folder.names, below, folder.status.st_mtime, sorted(files)))
            return sorted(folders, reverse=True)

        for _ in walk_steps(storage.namespace, inode, visit):
            yield from _folder_blocks(storage, user, visited.pop(), top, left_out)
    if left_out.count:
        text = left_out.text()
        yield _header((top, left_out.name), tarfile.REGTYPE, len(text), time.time())
        yield text + bytes(-len(text) % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


class _VisitedFolder(NamedTuple):
    names: _Names
    # Names from the top of the archive.
    below: _Names
    mtime: float
    files: list[str]


class _LeftOut:
    """What could not be read, and why."""

    def __init__(self) -> None:
        self.name = LEFT_OUT
        self.count = 0
        self._lines: list[str] = []

    def choose_name(self, used: Collection[str]) -> None:
        """Choose a name for this list that no entry beside it has."""
        stem, dot, suffix = LEFT_OUT.rpartition(".")
        names = (f"{stem}-{number}{dot}{suffix}" for number in itertools.count(2))
        self.name = next(name for name in itertools.chain((LEFT_OUT,), names) if name not in used)

    def add(self, names: _Names, why: str) -> None:
        self.count += 1
        if len(self._lines) < MAX_LISTED:
            self._lines.append(f"{'/'.join(names)}: {why}\n")

    def text(self) -> bytes:
        more = self.count - len(self._lines)
        lines = [*self._lines, *([f"{more} more\n"] if more else [])]
        return "".join(lines).encode()


def _check_listable(inode: Inode, path: str, user: StorageUser) -> None:
    if not inode.is_folder:
        raise InvalidParameters(f"{path} is a file: only folders have archives.", hint="Use OPEN.")
    inode.check_access(user, _LIST_ACCESS)


def _folder_blocks(
    storage: Storage, user: StorageUser, folder: _VisitedFolder, top: str, left_out: _LeftOut
) -> Iterator[bytes]:
    yield _header((top, *folder.below), tarfile.DIRTYPE, 0, folder.mtime)
    for name in folder.files:
        try:
            opened = storage.open_read("/" + "/".join((*folder.names, name)), user)
        except PaiError as error:
            left_out.add((*folder.below, name), error.message)
            continue
        try:
            yield from _file_blocks(opened.fd, (top, *folder.below, name))
        finally:
            os.close(opened.fd)


def _file_blocks(fd: int, names: _Names) -> Iterator[bytes]:
    status = os.fstat(fd)
    yield _header(names, tarfile.REGTYPE, status.st_size, status.st_mtime)
    at = 0
    while at < status.st_size:
        wanted = min(_BLOCK_BYTES, status.st_size - at)
        # Zeros in place of what was cut off meanwhile: the header has the size already.
        block = os.pread(fd, wanted, at).ljust(wanted, b"\0")
        at += wanted
        yield block if at < status.st_size else block + bytes(-at % tarfile.BLOCKSIZE)


def _header(names: _Names, kind: bytes, size: int, mtime: float) -> bytes:
    member = tarfile.TarInfo("/".join(names))
    member.type = kind
    member.size = size
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    member.mtime = int(min(max(mtime, 0), _MAX_TIME_S))
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
