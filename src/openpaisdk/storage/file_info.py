"""Plain values about files, the same for every storage backend: file info, folder listing, checksum."""

from __future__ import annotations

import os

from paiprotocol.transfer.sizes import format_size as format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from paiprotocol.transfer.sorted_files import FileStat as FileStat
    from paiprotocol.transfer.sorted_files import SortedFiles


class FileInfo:
    """A file or a folder in a listing. ``name`` is its last path component."""

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
        """Representation for ``-o json`` and the Python API."""
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
    """One folder of a walk: its path relative to the walk's root, its files, the names of its folders.

    ``others`` are neither: links to folders, broken links, pipes. Nothing is written to them or through them.
    """

    __slots__ = ("files", "folders", "others", "path")

    def __init__(self, path: str, files: dict[str, FileStat], folders: list[str], others: Sequence[str] = ()):
        self.path = path
        self.files = files
        self.folders = folders
        self.others = others


def folder_listings(
    path: str, files: SortedFiles, folders: list[str], others: Sequence[str] = ()
) -> Iterator[DirectoryListing]:
    """A folder as one listing, or as several if ``files`` are so many; the last has everything else."""
    for block, is_last in files.blocks():
        yield DirectoryListing(path, block, folders if is_last else [], others if is_last else ())


class Checksum:
    """File checksum as WebHDFS reports it: the algorithm's name and the hexadecimal ``bytes``."""

    __slots__ = ("algorithm", "md5")

    def __init__(self, algorithm: str, reported: str):
        self.algorithm = algorithm
        # Before the MD5 come the two numbers that are in the algorithm's name, too.
        self.md5 = reported[24:56].lower()


def walk_order(path: str) -> str:
    """Sort key of walks: a folder, then its contents, then its siblings."""
    return path.replace("/", "\0")


def is_valid_name(name: str) -> bool:
    """Whether it is a single path component. Names listed by a storage could lead out of the target."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and os.sep not in name


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def contains_path(folder: str, path: str) -> bool:
    """Whether a local path is that folder or lies below it, after resolving links."""
    above, below = os.path.realpath(folder), os.path.realpath(path)
    return above == below or below.startswith(above.rstrip(os.sep) + os.sep)


def is_unchanged(source: FileStat, target: FileStat, *, keeps_times: bool = True) -> bool:
    """Same size and time. HDFS stores times from 1970 on, in milliseconds; earlier ones become 0.

    Without ``keeps_times`` the target has the time at which it was written, in whole seconds: it must be
    younger than its source.
    """
    if not keeps_times:
        return source[0] == target[0] and source[1] // 1_000_000_000 < target[1] // 1_000_000_000
    before, after = source[1] // 1_000_000, target[1] // 1_000_000
    return source[0] == target[0] and (before == after or (before < 0 and after == 0))


def list_largest(files: list[tuple[int, str]], count: int = 10) -> str:
    """The largest files, for an error about size: ``a.bin (3 GB), b.bin (1 GB)``."""
    top = sorted(files, reverse=True)[:count]
    return ", ".join(f"{name} ({format_size(size)})" for size, name in top)
