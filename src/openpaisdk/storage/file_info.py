"""What lies in a storage: one entry, one folder of them. Plain values, the same for every kind of storage."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    FileStat = tuple[int, int, int]
    """Size, mtime in ns, mode."""


class FileInfo:
    """A file or a folder, as ``getinfo`` and ``listdir`` show it. ``name`` has no path before it."""

    __slots__ = ("group", "is_folder", "mode", "mtime_ns", "name", "owner", "size")

    def __init__(
        self,
        name: str,
        is_folder: bool,
        size: int,
        mtime_ns: int,
        mode: int,
        owner: str = "",
        group: str = "",
    ):
        self.name = name
        self.is_folder = is_folder
        self.size = size
        self.mtime_ns = mtime_ns
        self.mode = mode
        self.owner = owner
        self.group = group

    def as_mapping(self, path: str) -> dict[str, object]:
        """For programs: ``-o json`` and the Python API."""
        return {
            "name": self.name,
            "path": path,
            "type": "directory" if self.is_folder else "file",
            "size": self.size,
            "mtime": self.mtime_ns // 1_000_000,
            "permission": f"{self.mode & 0o7777:o}",
            "owner": self.owner,
            "group": self.group,
        }


class DirectoryListing:
    """One folder of a walk: its way from where the walk began, its files, the names of its folders.

    ``others`` are neither: links to folders or to nothing, pipes. Nothing is written to them or through them.
    """

    __slots__ = ("files", "folders", "others", "path")

    def __init__(self, path: str, files: dict[str, FileStat], folders: list[str], others: Sequence[str] = ()):
        self.path = path
        self.files = files
        self.folders = folders
        self.others = others


def order(path: str) -> str:
    """Walks come in this order: a folder, then what is in it, then its neighbours."""
    return path.replace("/", "\0")


def is_name(name: str) -> bool:
    """Whether it names something in a folder. What a storage lists may lead anywhere else."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and os.sep not in name


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def holds(folder: str, path: str) -> bool:
    """Whether a folder of this machine is that one, or has it below it, however either is written."""
    above, below = os.path.realpath(folder), os.path.realpath(path)
    return above == below or below.startswith(above.rstrip(os.sep) + os.sep)


def is_same(ours: FileStat, theirs: FileStat) -> bool:
    """Unchanged, as far as can be told without reading: HDFS keeps times from 1970 on, to the millisecond."""
    before, after = ours[1] // 1_000_000, theirs[1] // 1_000_000
    return ours[0] == theirs[0] and (before == after or (before < 0 and after == 0))


def amount(size: float) -> str:
    """A size people read: 18 MB, 1.2 GB."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1000:
            return f"{size:.1f} {unit}" if size < 9.95 else f"{size:.0f} {unit}"
    return f"{size / 1024:.1f} PB"


def largest(files: list[tuple[int, str]], count: int = 10) -> str:
    """The largest offenders, for an error about size: ``a.bin (3 GB), b.bin (1 GB)``."""
    found = sorted(files, reverse=True)[:count]
    return ", ".join(f"{name} ({amount(size)})" for size, name in found)
