"""Hadoop archives (HAR), version 3: contents one after the other in ``part-N``, names in ``_index``.

Hadoop's ``har://`` file system reads ``_masterindex`` and ``_index``; both are written after the last part.
"""

from __future__ import annotations

from itertools import groupby, islice
from urllib.parse import quote_plus, unquote_plus

from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.formats.base import FoundRecord, ShardReader, ShardWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.data.formats.base import Content, ReadAt

VERSION = 3
LINES_PER_MASTER_LINE = 1000
"""``_masterindex`` has one line for this many lines of ``_index``."""
_HASH_BITS, _RANGE_BITS = 31, 6
_IN_MEMORY_BYTES = 1 << 16
# Time, mode (0644 and 0755 as decimal numbers), owner and group: fixed, so that the same files give the same
# bytes.
_FILE_PROPERTIES = "0 420 hdfs supergroup"
_FOLDER_PROPERTIES = "0 493 hdfs supergroup"


class HarFile:
    """A file of an archive: its path without a leading slash, its part, and where it is there."""

    __slots__ = ("length", "offset", "part", "path")

    def __init__(self, path: str, part: str, offset: int, length: int):
        self.path = path
        self.part = part
        self.offset = offset
        self.length = length


class HarWriter(ShardWriter):
    def add(self, key: bytes, size: int, content: Content) -> None:
        offset = self.offset
        self.index.add(key, offset, size, self.copy(content), size)


class HarReader(ShardReader):
    """Reads the files of one part that the archive's index names."""

    def __init__(self, read_at: ReadAt, size: int, what: str, files: Callable[[], list[HarFile]]):
        super().__init__(read_at, size, what)
        self._files = files

    def scan(self) -> Iterator[FoundRecord]:
        for number, file in enumerate(self._files()):
            if file.offset + file.length > self.size:
                raise DamagedShard(self.what, "it is truncated", record=number, offset=file.offset)
            yield FoundRecord(
                file.path.encode("utf-8", "surrogateescape"), file.offset, file.length, self.read_at
            )


class HarIndexBuilder:
    """Makes ``_index`` and ``_masterindex``, whose entries have the order of their hashes.

    An archive may have more files than fit into memory: entries lie in temporary files until ``write``, each
    of them with the entries of a range of hashes, and one of them is sorted at a time.
    """

    def __init__(self) -> None:
        from tempfile import SpooledTemporaryFile

        self._ranges = [
            SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - they live as long as this builder
            for _ in range(1 << _RANGE_BITS)
        ]
        self._last_folder = ""
        self._add("/", "dir")

    def add(self, file: HarFile) -> None:
        self._add("/" + file.path, f"file {file.part} {file.offset} {file.length}")
        path, last_folder = file.path, self._last_folder + "/"
        self._last_folder = file.path.rpartition("/")[0]
        while path:
            folder, _, name = path.rpartition("/")
            self._add("/" + folder, f"dir {_quote(name)}")
            # Files come folder by folder: the folders above are mostly those of the last file.
            path = "" if last_folder.startswith(folder + "/") else folder

    def _add(self, path: str, entry: str) -> None:
        number = java_hash(path)
        line = f"{number} {_quote(path)} {entry}\n"
        self._ranges[number >> (_HASH_BITS - _RANGE_BITS)].write(line.encode())

    def write(self, write: Callable[[bytes], None]) -> bytes:
        """Pass ``_index`` to ``write``, piece by piece; returns ``_masterindex``."""
        master = [f"{VERSION} \n"]
        lines = self._lines()
        offset = 0
        while some := list(islice(lines, LINES_PER_MASTER_LINE)):
            data = "".join(line for _, line in some).encode()
            write(data)
            master.append(f"{some[0][0]} {some[-1][0]} {offset} {offset + len(data)} \n")
            offset += len(data)
        return "".join(master).encode()

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Hashes and lines of all entries, in order."""
        for entries in self._ranges:
            lines: list[tuple[int, str]] = []
            folders: dict[tuple[int, str], list[str]] = {}
            entries.seek(0)
            for entry in entries:
                number, path, kind, *rest = entry.decode().split()
                if kind == "dir":
                    folders.setdefault((int(number), path), []).extend(rest)
                else:
                    lines.append((int(number), f"{path} file {' '.join(rest)} {_quote(_FILE_PROPERTIES)} \n"))
            entries.close()
            for (hash_of_path, path), names in folders.items():
                names.sort()
                listed = "".join(f"{name} " for name, _ in groupby(names))
                lines.append((hash_of_path, f"{path} dir {_quote(_FOLDER_PROPERTIES)} 0 0 {listed}\n"))
            lines.sort()
            yield from lines


def decode_index(data: bytes, what: str) -> list[HarFile]:
    """The files of an ``_index``, in the order of their parts and offsets."""
    files = []
    for number, line in enumerate(data.split(b"\n")):
        fields = line.decode("utf-8", "replace").split(" ")
        if len(fields) < 5 or fields[1] != "file":
            if line.strip() and (len(fields) < 2 or fields[1] != "dir"):
                raise DamagedShard(what, f"line {number + 1} of the index is not an entry")
            continue
        if not fields[3].isdecimal() or not fields[4].isdecimal() or "/" in fields[2]:
            raise DamagedShard(what, f"line {number + 1} of the index is not an entry")
        path = unquote_plus(fields[0], errors="surrogateescape").lstrip("/")
        files.append(HarFile(path, fields[2], int(fields[3]), int(fields[4])))
    files.sort(key=lambda file: (_part_number(file.part), file.offset, file.path))
    return files


def java_hash(text: str) -> int:
    """Java's ``String.hashCode`` without its sign: entries are sorted by it."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def _part_number(part: str) -> int:
    number = part.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _quote(text: str) -> str:
    return quote_plus(text, safe="*-._", errors="surrogateescape")
