"""Walking the folder of a storage: name by name, from an open folder to the next, never through a link.

The kernel is only ever handed one name below a folder that is already open, so that no path can lead out,
whatever it holds and whoever moves things about meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from openpaisdk.errors import ConfigError
from paicluster.files import ownership
from paicluster.files.errors import is_a_folder, no_file, not_a_folder, not_allowed
from paicluster.files.ownership import READ_ONLY, Ownership
from paicluster.files.paths import OWN, Names, names_of, text_of
from paicluster.files.permissions import Access, StorageUser, allowed, described

LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """What clients are told about a file or a folder. ``name`` is empty for the thing that was asked for.

    Folders can be long, and a tuple is made faster than a frozen dataclass is.
    """

    name: str
    folder: bool
    size: int
    modified_ms: int
    accessed_ms: int
    record: Ownership
    file_id: int


@dataclass(slots=True)
class Inode:
    """A file or folder of the tree, held by an open descriptor that gives no right but to point at it."""

    fd: int
    status: os.stat_result
    record: Ownership
    names: Names

    @property
    def folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def path(self) -> str:
        return text_of(self.names)

    @property
    def on_disk(self) -> str:
        """A path to the very thing, which stays right when it is renamed."""
        return f"/proc/self/fd/{self.fd}"

    def entry(self, name: str = "") -> Entry:
        return _entry(name, self.status, self.record)

    def check_traversable(self, who: StorageUser) -> None:
        if not self.folder:
            raise not_a_folder(self.path)
        self.refuse_unless(who, Access.EXECUTE)

    def refuse_unless(self, who: StorageUser, need: Access) -> None:
        if not allowed(who, self.record, need):
            what = described(self.record, folder=self.folder)
            raise not_allowed(
                f'Permission denied: user={who.name}, access={need.word}, inode="{self.path}":{what}'
            )


class PathLookup:
    """Where a path leads: the folder that holds it, and what is there, if anything is.

    ``missing`` are the names from the first one that does not exist; ``parent_inode`` is then the last folder
    that does.
    """

    def __init__(self, names: Names, node: Inode):
        self.names = names
        self.parent_inode: Inode | None = None
        self.node: Inode | None = node
        self.missing: Names = ()
        self._owned: list[int] = []

    @property
    def path(self) -> str:
        return text_of(self.names)

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else ""

    def existing(self) -> Inode:
        if self.node is None:
            raise no_file(self.path)
        return self.node

    def file(self) -> Inode:
        node = self.existing()
        if node.folder:
            raise is_a_folder(self.path)
        return node

    def parent(self) -> Inode:
        """The folder it lies in, or would; the root lies in none."""
        if self.parent_inode is None:
            raise is_a_folder(self.path)
        return self.parent_inode

    def step(self, node: Inode) -> None:
        if len(self._owned) > 1:
            os.close(self._owned.pop(0))
        self._owned.append(node.fd)
        self.parent_inode, self.node = self.node, node

    def stop(self, missing: Names) -> None:
        self.parent_inode, self.node, self.missing = self.node, None, missing

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
    """The folder itself."""

    def __init__(self, root: Path, *, read_only: bool = False, groups: Collection[str] = ()):
        self._read_only = read_only
        self._groups = frozenset(groups)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.keeps_records = ownership.disk_keeps_records(self.fd)
        except OSError as error:
            raise ConfigError(f"The storage {root} cannot be used: {error.strerror}.") from error

    def close(self) -> None:
        os.close(self.fd)

    def find(self, path: str, who: StorageUser) -> PathLookup:
        """Follow a path as far as it goes; whoever may not pass through a folder on the way is refused."""
        names = names_of(path)
        if self._groups and not who.admin and self._groups.isdisjoint(who.groups):
            raise not_allowed(f"Permission denied: user={who.name} is in none of the groups of this storage")
        spot = PathLookup(names, self._root())
        try:
            for i, name in enumerate(names):
                folder = spot.existing()
                folder.check_traversable(who)
                child = self.child(folder, name)
                if child is None:
                    spot.stop(names[i:])
                    break
                spot.step(child)
        except BaseException:
            spot.close()
            raise
        return spot

    def child(self, folder: Inode, name: str) -> Inode | None:
        """What a folder has by a name; None also for links, devices and whatever else is no file."""
        try:
            fd = os.open(name, LOOK, dir_fd=folder.fd)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(fd)
            if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
                os.close(fd)
                return None
            names = (*folder.names, name)
            return self._node(fd, status, names)
        except BaseException:
            os.close(fd)
            raise

    def set_record(self, node: Inode, record: Ownership) -> None:
        ownership.write(node.on_disk, record, keeps=self.keeps_records)
        node.record = record

    def _root(self) -> Inode:
        status = os.fstat(self.fd)
        return self._node(self.fd, status, ())

    def _node(self, fd: int, status: os.stat_result, names: Names) -> Inode:
        record = ownership.read(f"/proc/self/fd/{fd}", names, status)
        if self._read_only:
            record = record._replace(mode=record.mode | READ_ONLY)
        return Inode(fd, status, record, names)


def open_folder(node: Inode) -> int:
    """A descriptor that can be listed."""
    return os.open(".", _FOLDER, dir_fd=node.fd)


def open_file(node: Inode, flags: int) -> int:
    """The file itself, opened: it can be no other than the one that was checked."""
    return os.open(node.on_disk, flags | os.O_CLOEXEC)


def names_in(node: Inode, *, folders_only: bool = False) -> list[str]:
    """What a folder holds, in no order. What cannot be named in UTF-8, and what is no file, is left out."""
    fd = open_folder(node)
    try:
        with os.scandir(fd) as found:
            # The kind of a thing comes with its name, and costs no look at the thing itself.
            return [
                item.name
                for item in found
                if (
                    item.is_dir(follow_symlinks=False)
                    or (not folders_only and item.is_file(follow_symlinks=False))
                )
                and _can_be_named(item.name)
                and (item.name != OWN or node.names)
            ]
    finally:
        os.close(fd)


def _can_be_named(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def entries(node: Inode, names: Iterable[str] | None = None, *, with_records: bool = True) -> Iterator[Entry]:
    """What is to be told about these names of a folder, or about all. Those that are gone are left out."""
    fd = open_folder(node)
    try:
        for name in names_in(node) if names is None else names:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
                    continue
                record = NOBODY
                if with_records:
                    at = f"/proc/self/fd/{fd}/{name}"
                    record = ownership.read(at, (*node.names, name), status, is_descriptor=False)
            except FileNotFoundError:
                continue
            yield _entry(name, status, record)
    finally:
        os.close(fd)


NOBODY = Ownership("", "", 0)


def _entry(name: str, status: os.stat_result, record: Ownership) -> Entry:
    folder = stat.S_ISDIR(status.st_mode)
    return Entry(
        name=name,
        folder=folder,
        size=0 if folder else status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        accessed_ms=0 if folder else status.st_atime_ns // 1_000_000,
        record=record,
        file_id=status.st_ino,
    )
