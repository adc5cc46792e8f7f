"""A whole tree as lines of JSON, one a folder, in the order in which clients compare them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from paicluster.files import Access, Storage, StorageUser
from paicluster.files.errors import disk_errors, not_a_folder
from paicluster.files.namespace import Inode, open_folder
from paicluster.files.paths import OWN
from paicluster.files.walk import steps

_encode = msgspec.json.Encoder().encode
_LOOK_IN = Access.READ | Access.EXECUTE


def tree_lines(storage: Storage, path: str, who: StorageUser) -> Iterator[bytes]:
    """`{"p": way, "f": {name: [size, mtime in ns, 0]}, "d": [names]}`; the last line counts the others.

    The mode of a file is not told: it would double the cost of a tree, and comparing needs none.
    """
    count = 0
    with disk_errors(path), storage.tree.find(path, who) as spot:
        node = spot.existing()
        if not node.folder:
            raise not_a_folder(path)
        found: list[bytes] = []

        def look(folder: Inode) -> list[str]:
            line, below = _looked(folder, len(node.names), who)
            found.append(line)
            return below[::-1]

        for _ in steps(storage.tree, node, look):
            count += 1
            yield found.pop()
    yield _encode({"end": count}) + b"\n"


def _looked(node: Inode, depth: int, who: StorageUser) -> tuple[bytes, list[str]]:
    """What is told of a folder, and the folders in it, by name."""
    node.refuse_unless(who, _LOOK_IN)
    files: dict[str, tuple[int, int, int]] = {}
    folders: list[str] = []
    fd = open_folder(node)
    try:
        with os.scandir(fd) as found:
            for item in found:
                name = item.name
                if item.is_dir(follow_symlinks=False):
                    if node.names or name != OWN:
                        folders.append(name)
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    files[name] = (status.st_size, status.st_mtime_ns, 0)
    finally:
        os.close(fd)
    way = "/".join(node.names[depth:])
    folders = sorted(name for name in folders if _is_text(name))
    try:
        line = _encode({"p": way, "f": files, "d": folders})
    except UnicodeEncodeError:
        line = _encode({"p": way, "f": {n: f for n, f in files.items() if _is_text(n)}, "d": folders})
    return line + b"\n", folders


def _is_text(name: str) -> bool:
    """Whether clients can name it at all."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
