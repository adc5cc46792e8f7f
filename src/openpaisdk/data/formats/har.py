"""Hadoop archives (HAR), version 3: contents one after the other in ``part-N``, names in ``_index``.

Hadoop's ``har://`` file system reads ``_masterindex`` and ``_index``; both are written after the last part.
"""

from __future__ import annotations

from urllib.parse import quote_plus, unquote_plus

from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.formats.base import FoundRecord, ShardReader, ShardWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from openpaisdk.data.formats.base import Content, ReadAt

VERSION = 3
LINES_PER_RANGE = 1000
"""``_masterindex`` has one line for this many lines of ``_index``."""
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


def encode_indexes(files: Iterable[HarFile]) -> tuple[bytes, bytes]:
    """``_index`` and ``_masterindex`` of an archive."""
    lines: list[tuple[int, str]] = []
    children: dict[str, list[str]] = {"": []}
    for file in files:
        path = "/" + file.path
        lines.append(
            (
                java_hash(path),
                f"{_quote(path)} file {file.part} {file.offset} {file.length} {_quote(_FILE_PROPERTIES)} ",
            )
        )
        _add_to_folders(children, file.path)
    for folder, names in children.items():
        path = "/" + folder
        listed = "".join(_quote(name) + " " for name in sorted(names))
        lines.append((java_hash(path), f"{_quote(path)} dir {_quote(_FOLDER_PROPERTIES)} 0 0 {listed}"))
    lines.sort()
    index = bytearray()
    master = bytearray(f"{VERSION} \n".encode())
    for start in range(0, len(lines), LINES_PER_RANGE):
        some = lines[start : start + LINES_PER_RANGE]
        begin = len(index)
        for _, line in some:
            index += line.encode() + b"\n"
        master += f"{some[0][0]} {some[-1][0]} {begin} {len(index)} \n".encode()
    return bytes(index), bytes(master)


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


def _add_to_folders(children: dict[str, list[str]], path: str) -> None:
    """Enter a path into the list of its folder, and new folders into those above."""
    while True:
        folder, _, name = path.rpartition("/")
        is_known = folder in children
        children.setdefault(folder, []).append(name)
        if is_known:
            return
        path = folder


def _part_number(part: str) -> int:
    number = part.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _quote(text: str) -> str:
    return quote_plus(text, safe="*-._", errors="surrogateescape")
