"""Read operations: status, listing, summary, open."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from paicluster.files.directories import check_may_add
from paicluster.files.errors import disk_errors, not_a_folder
from paicluster.files.listing_cache import ListingCache
from paicluster.files.namespace import Entry, Inode, Namespace, entries, names_in, open_file
from paicluster.files.permissions import Access, StorageUser
from paicluster.files.walk import walk

_LIST_ACCESS = Access.READ | Access.EXECUTE


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries by name; ``remaining`` is how many more there are."""

    entries: list[Entry]
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """Number of folders and files below a path, and their total size in bytes."""

    folders: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class OpenFile:
    """File opened for reading; it stays the same file when its path is changed. The caller closes ``fd``."""

    fd: int
    entry: Entry


def status(namespace: Namespace, path: str, user: StorageUser) -> Entry:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        return lookup.existing().entry()


def listing(namespace: Namespace, path: str, user: StorageUser) -> Listing:
    """Entries of a folder, sorted by the bytes of their names; of a file a single entry without a name."""
    return _listing(namespace, path, user, lambda inode: (sorted(names_in(inode)), 0))


def list_batch(
    namespace: Namespace, cache: ListingCache, path: str, user: StorageUser, after: str, limit: int
) -> Listing:
    """One page of a listing: the entries after the name ``after``."""
    return _listing(namespace, path, user, lambda inode: cache.names(inode, after, limit))


def _listing(
    namespace: Namespace, path: str, user: StorageUser, names: Callable[[Inode], tuple[list[str], int]]
) -> Listing:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        if not inode.is_folder:
            return Listing([inode.entry()])
        inode.check_access(user, _LIST_ACCESS)
        page, remaining = names(inode)
        return Listing(list(entries(inode, page)), remaining)


def count_children(namespace: Namespace, path: str, user: StorageUser) -> int:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        return len(names_in(inode)) if inode.is_folder else 0


def check_may_fill(namespace: Namespace, path: str, user: StorageUser) -> None:
    """Raise unless the user may write files into this folder, which need not exist yet."""
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        if lookup.inode is not None:
            if not lookup.inode.is_folder:
                raise not_a_folder(path)
            lookup.inode.check_access(user, Access.WRITE | Access.EXECUTE)
            return
        parent = lookup.parent_inode
        if parent is None or not parent.is_folder:
            raise not_a_folder(path if parent is None else parent.path)
        check_may_add(namespace, parent, lookup.missing[0], user)


def check_access(namespace: Namespace, path: str, user: StorageUser, access: Access) -> None:
    """Forbidden unless the user has this access to the path."""
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        lookup.existing().check_access(user, access)


def open_read(namespace: Namespace, path: str, user: StorageUser) -> OpenFile:
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.file()
        inode.check_access(user, Access.READ)
        fd = open_file(inode, os.O_RDONLY)
        inode.status = os.fstat(fd)
        return OpenFile(fd, inode.entry(lookup.name))


def summary(namespace: Namespace, path: str, user: StorageUser) -> Summary:
    """Count of folders and files below a path, including itself, and their bytes."""
    with disk_errors(path), namespace.look_up(path, user) as lookup:
        inode = lookup.existing()
        return _sum(namespace, inode, user) if inode.is_folder else Summary(0, 1, inode.status.st_size)


def _sum(namespace: Namespace, inode: Inode, user: StorageUser) -> Summary:
    folders, files, size = 0, 0, 0

    def visit(folder: Inode) -> list[str]:
        nonlocal folders, files, size
        folder.check_access(user, _LIST_ACCESS)
        folders += 1
        below = []
        for entry in entries(folder, with_ownership=False):
            if entry.is_folder:
                below.append(entry.name)
            else:
                files += 1
                size += entry.size
        return below

    walk(namespace, inode, visit)
    return Summary(folders, files, size)
