"""Looking: what is there, how much it is, what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from paicluster.files.errors import disk_errors
from paicluster.files.listing_cache import ListingCache
from paicluster.files.namespace import Entry, Inode, Namespace, entries, names_in, open_file
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.walk import walk

_LOOK_IN = Access.READ | Access.EXECUTE


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries by name; ``remaining`` is how many more there are."""

    entries: list[Entry]
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    folders: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file to read from, which stays the same whatever becomes of its path. The caller closes ``fd``."""

    fd: int
    entry: Entry


def status(tree: Namespace, path: str, who: StorageUser) -> Entry:
    with disk_errors(path), tree.find(path, who) as spot:
        return spot.existing().entry()


def listing(tree: Namespace, path: str, who: StorageUser) -> Listing:
    """What a folder holds, in the order of the names' bytes; a file is the one entry, without a name."""
    return _listing(tree, path, who, lambda node: (sorted(names_in(node)), 0))


def batch(
    tree: Namespace, batches: ListingCache, path: str, who: StorageUser, after: str, limit: int
) -> Listing:
    """The same, of a part of the names."""
    return _listing(tree, path, who, lambda node: batches.names(node, after, limit))


def _listing(
    tree: Namespace, path: str, who: StorageUser, names: Callable[[Inode], tuple[list[str], int]]
) -> Listing:
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        if not node.folder:
            return Listing([node.entry()])
        node.refuse_unless(who, _LOOK_IN)
        shown, remaining = names(node)
        return Listing(list(entries(node, shown)), remaining)


def count_children(tree: Namespace, path: str, who: StorageUser) -> int:
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        return len(names_in(node)) if node.folder else 0


def check(tree: Namespace, path: str, who: StorageUser, need: Access) -> None:
    """Refused, or nothing."""
    with disk_errors(path), tree.find(path, who) as spot:
        spot.existing().refuse_unless(who, need)


def open_read(tree: Namespace, path: str, who: StorageUser) -> OpenFile:
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.file()
        node.refuse_unless(who, Access.READ)
        fd = open_file(node, os.O_RDONLY)
        node.status = os.fstat(fd)
        return OpenFile(fd, node.entry(spot.name))


def summary(tree: Namespace, path: str, who: StorageUser) -> Summary:
    """How many folders and files there are, with itself, and how many bytes."""
    with disk_errors(path), tree.find(path, who) as spot:
        node = spot.existing()
        return _sum(tree, node, who) if node.folder else Summary(0, 1, node.status.st_size)


def _sum(tree: Namespace, node: Inode, who: StorageUser) -> Summary:
    folders, files, size = 0, 0, 0

    def look(folder: Inode) -> list[str]:
        nonlocal folders, files, size
        folder.refuse_unless(who, _LOOK_IN)
        folders += 1
        below = []
        for entry in entries(folder, with_records=False):
            if entry.folder:
                below.append(entry.name)
            else:
                files += 1
                size += entry.size
        return below

    walk(tree, node, look)
    return Summary(folders, files, size)
