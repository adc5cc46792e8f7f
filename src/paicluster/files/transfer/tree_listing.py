"""Recursive listing as lines of JSON, folder by folder, in the order in which clients compare them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.errors import disk_errors, not_a_folder
from paicluster.files.namespace import Inode, open_folder
from paicluster.files.paths import INTERNAL_FOLDER
from paicluster.files.walk import walk_steps
from paiprotocol.transfer.sorted_files import SortedFiles

_encode = msgspec.json.Encoder().encode
_LIST_ACCESS = Access.READ | Access.EXECUTE


def tree_lines(storage: Storage, path: str, user: StorageUser, max_files: int = 0) -> Iterator[bytes]:
    """One line per folder: `{"p": path, "f": {name: [size, mtime in ns, 0]}, "d": [names]}`.

    With `max_files`, a folder of more files has several lines, in the order of their names; the names of its
    folders are in the last. The last line of all has the number of folders. File modes are not included:
    they would double the cost of a listing, and a comparison does not need them.
    """
    count = 0
    with disk_errors(path), storage.namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        if not inode.is_folder:
            raise not_a_folder(path)
        lines: Iterator[bytes] = iter(())

        def visit(folder: Inode) -> list[str]:
            nonlocal lines
            files, below = _list_folder(folder, user, max_files)
            lines = _folder_lines("/".join(folder.names[len(inode.names) :]), files, below)
            return below[::-1]

        for _ in walk_steps(storage.namespace, inode, visit):
            count += 1
            yield from lines
    yield _encode({"end": count}) + b"\n"


def _list_folder(inode: Inode, user: StorageUser, max_files: int) -> tuple[SortedFiles, list[str]]:
    """Files of one folder, and the sorted names of its subfolders."""
    inode.check_access(user, _LIST_ACCESS)
    files = SortedFiles(max_files)
    folders: list[str] = []
    fd = open_folder(inode)
    try:
        with os.scandir(fd) as items:
            for item in items:
                name = item.name
                if item.is_dir(follow_symlinks=False):
                    if inode.names or name != INTERNAL_FOLDER:
                        folders.append(name)
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    files.add(name, (status.st_size, status.st_mtime_ns, 0))
    finally:
        os.close(fd)
    return files, sorted(name for name in folders if _is_utf8(name))


def _folder_lines(path: str, files: SortedFiles, folders: list[str]) -> Iterator[bytes]:
    for block, is_last in files.blocks():
        yield _line(path, block, folders if is_last else [])


def _line(path: str, files: dict[str, tuple[int, int, int]], folders: list[str]) -> bytes:
    try:
        line = _encode({"p": path, "f": files, "d": folders})
    except UnicodeEncodeError:
        line = _encode({"p": path, "f": {n: f for n, f in files.items() if _is_utf8(n)}, "d": folders})
    return line + b"\n"


def _is_utf8(name: str) -> bool:
    """Whether clients can address it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
