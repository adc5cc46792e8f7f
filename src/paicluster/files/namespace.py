"""The storage's namespace: path lookup name by name, from one open folder to the next, never through a link.

The kernel is only given one name below a folder that is already open, so no path can lead outside the
storage, whatever it contains and whatever is moved concurrently.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from paicluster.files.errors import is_a_folder, no_file, not_a_folder, not_allowed
from paicluster.files.ownership import (
    OPEN_MODE,
    READ_ONLY,
    Ownership,
    read_ownership,
    supports_xattrs,
    write_ownership,
)
from paicluster.files.paths import INTERNAL_FOLDER, Names, join_path, split_path
from paicluster.files.permissions import Access, StorageUser, hadoop_description, is_allowed
from paiprotocol.errors import ConfigError

LOOKUP_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """Status of a file or folder as clients see it. ``name`` is empty for the requested path itself.

    A tuple, because it is created faster than a frozen dataclass, and folders can be long.
    """

    name: str
    is_folder: bool
    size: int
    modified_ms: int
    accessed_ms: int
    ownership: Ownership
    file_id: int
    # Names that the file has: more than one means that a linked copy shares its bytes.
    links: int = 1


@dataclass(slots=True)
class Inode:
    """A file or folder with an open O_PATH descriptor, which permits neither reading nor writing."""

    fd: int
    status: os.stat_result
    ownership: Ownership
    names: Names

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def path(self) -> str:
        return join_path(self.names)

    @property
    def on_disk(self) -> str:
        """Path that refers to this inode even after it is renamed."""
        return f"/proc/self/fd/{self.fd}"

    def entry(self, name: str = "") -> Entry:
        return _entry(name, self.status, self.ownership)

    def check_traversable(self, user: StorageUser) -> None:
        if not self.is_folder:
            raise not_a_folder(self.path)
        self.check_access(user, Access.EXECUTE)

    def check_access(self, user: StorageUser, access: Access) -> None:
        if not is_allowed(user, self.ownership, access):
            what = f'access={access.hadoop_name}, inode="{self.path}"'
            owner = hadoop_description(self.ownership, is_folder=self.is_folder)
            raise not_allowed(f"Permission denied: user={user.name}, {what}:{owner}")


class PathLookup:
    """Result of a path lookup: the parent folder, and the inode if the path exists.

    ``missing`` holds the names from the first one that does not exist; ``parent_inode`` is then the last
    folder that does.
    """

    def __init__(self, names: Names, inode: Inode):
        self.names = names
        self.parent_inode: Inode | None = None
        self.inode: Inode | None = inode
        self.missing: Names = ()
        self._owned: list[int] = []

    @property
    def path(self) -> str:
        return join_path(self.names)

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else ""

    def existing(self) -> Inode:
        if self.inode is None:
            raise no_file(self.path)
        return self.inode

    def file(self) -> Inode:
        inode = self.existing()
        if inode.is_folder:
            raise is_a_folder(self.path)
        return inode

    def parent(self) -> Inode:
        """Parent folder of the path, whether or not the path exists; the root has none."""
        if self.parent_inode is None:
            raise is_a_folder(self.path)
        return self.parent_inode

    def descend(self, inode: Inode) -> None:
        if len(self._owned) > 1:
            os.close(self._owned.pop(0))
        self._owned.append(inode.fd)
        self.parent_inode, self.inode = self.inode, inode

    def end_at_missing(self, missing: Names) -> None:
        self.parent_inode, self.inode, self.missing = self.inode, None, missing

    def close(self) -> None:
        while self._owned:
            os.close(self._owned.pop())

    def __enter__(self) -> PathLookup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Namespace:
    """The storage's root directory, and lookups below it."""

    def __init__(
        self, root: Path, *, read_only: bool = False, groups: Collection[str] = (), open_root: bool = False
    ):
        self._read_only = read_only
        self._open_root = open_root
        self._groups = frozenset(groups)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.has_xattrs = supports_xattrs(self.fd)
        except OSError as error:
            raise ConfigError(f"The storage {root} cannot be used: {error.strerror}.") from error

    def close(self) -> None:
        os.close(self.fd)

    def look_up(self, path: str, user: StorageUser) -> PathLookup:
        """Follow a path as far as it exists; Forbidden when the user may not traverse a folder on the way."""
        names = split_path(path)
        if self._groups and not user.admin and self._groups.isdisjoint(user.groups):
            raise not_allowed(f"Permission denied: user={user.name} is in none of the groups of this storage")
        lookup = PathLookup(names, self._root())
        try:
            for i, name in enumerate(names):
                folder = lookup.existing()
                folder.check_traversable(user)
                child = self.child(folder, name)
                if child is None:
                    lookup.end_at_missing(names[i:])
                    break
                lookup.descend(child)
        except BaseException:
            lookup.close()
            raise
        return lookup

    def child(self, folder: Inode, name: str) -> Inode | None:
        """Child of a folder by name; None also for links, devices and other special files."""
        try:
            fd = os.open(name, LOOKUP_FLAGS, dir_fd=folder.fd)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(fd)
            if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
                os.close(fd)
                return None
            names = (*folder.names, name)
            return self._inode(fd, status, names)
        except BaseException:
            os.close(fd)
            raise

    def set_ownership(self, inode: Inode, ownership: Ownership) -> None:
        write_ownership(inode.on_disk, ownership, has_xattrs=self.has_xattrs)
        inode.ownership = ownership

    def _root(self) -> Inode:
        status = os.fstat(self.fd)
        root = self._inode(self.fd, status, ())
        if self._open_root:
            # Not stored: without the setting the root has its own mode again.
            root.ownership = root.ownership._replace(mode=root.ownership.mode | OPEN_MODE)
        return root

    def _inode(self, fd: int, status: os.stat_result, names: Names) -> Inode:
        ownership = read_ownership(f"/proc/self/fd/{fd}", names, status)
        if self._read_only:
            ownership = ownership._replace(mode=ownership.mode | READ_ONLY)
        return Inode(fd, status, ownership, names)


def open_folder(inode: Inode) -> int:
    """A descriptor of the folder that can be listed."""
    return os.open(".", _FOLDER, dir_fd=inode.fd)


def open_file(inode: Inode, flags: int) -> int:
    """Open exactly the file whose permissions were checked."""
    return os.open(inode.on_disk, flags | os.O_CLOEXEC)


def names_in(inode: Inode, *, folders_only: bool = False) -> list[str]:
    """Unordered names in a folder, without names that are not UTF-8 and without special files."""
    fd = open_folder(inode)
    try:
        with os.scandir(fd) as items:
            # The directory entry contains the type, so no stat call is needed.
            return [
                item.name
                for item in items
                if (
                    item.is_dir(follow_symlinks=False)
                    or (not folders_only and item.is_file(follow_symlinks=False))
                )
                and _is_utf8(item.name)
                and (item.name != INTERNAL_FOLDER or inode.names)
            ]
    finally:
        os.close(fd)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def entries(
    inode: Inode, names: Iterable[str] | None = None, *, with_ownership: bool = True
) -> Iterator[Entry]:
    """Entries of these names of a folder, or of all. Names deleted meanwhile are skipped."""
    fd = open_folder(inode)
    try:
        for name in names_in(inode) if names is None else names:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
                    continue
                ownership = NO_OWNERSHIP
                if with_ownership:
                    at = f"/proc/self/fd/{fd}/{name}"
                    ownership = read_ownership(at, (*inode.names, name), status, is_descriptor=False)
            except FileNotFoundError:
                continue
            yield _entry(name, status, ownership)
    finally:
        os.close(fd)


NO_OWNERSHIP = Ownership("", "", 0)


def _entry(name: str, status: os.stat_result, ownership: Ownership) -> Entry:
    folder = stat.S_ISDIR(status.st_mode)
    return Entry(
        name=name,
        is_folder=folder,
        size=0 if folder else status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        accessed_ms=0 if folder else status.st_atime_ns // 1_000_000,
        ownership=ownership,
        file_id=status.st_ino,
        links=1 if folder else status.st_nlink,
    )
