"""Reads packs, and single shards of other programs: random access by number and by key."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict

from openpaisdk.data.errors import DamagedShard, not_a_pack, unfinished_pack, unreadable_record
from openpaisdk.data.file_contents import read_whole
from openpaisdk.data.formats.har import HarReader, decode_index
from openpaisdk.data.formats.registry import open_reader
from openpaisdk.data.manifest import (
    HAR_INDEX,
    HAR_MASTER_INDEX,
    MANIFEST,
    Manifest,
    format_of,
    index_name,
)
from openpaisdk.data.record_checksum import crc32c_function
from openpaisdk.data.record_source import RecordRun, RecordSource, runs_of
from openpaisdk.data.shard_index import IndexBuilder, ShardIndex
from openpaisdk.storage.backends.base import error_from_oserror, not_found_error
from openpaisdk.storage.catalog import StorageOpener
from openpaisdk.storage.location import parse_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.data.formats.base import ShardReader
    from openpaisdk.data.formats.har import HarFile
    from openpaisdk.storage.backends.base import Backend, SourceFile

MAX_OPEN_SHARDS = 128
MAX_BUFFER_BYTES = 4 << 20
"""Longer runs are of few large records."""
WRONG_CRC = "the content does not have the CRC of the index"


class _OpenShard:
    """A shard that is open as long as any thread refers to it: another one may still read it."""

    __slots__ = ("reader", "source")

    def __init__(self, source: SourceFile, reader: ShardReader):
        self.source = source
        self.reader = reader

    def __del__(self) -> None:
        self.source.close()


class _ReadBuffer(threading.local):
    """Memory that runs are read into, one for each thread. A slice of it is a ``bytes`` of its own.

    New memory of a megabyte costs more than what is read into it: the kernel clears it page by page.
    """

    _memory: mmap.mmap | None = None

    def read(self, source: SourceFile, offset: int, length: int) -> bytes | mmap.mmap:
        """Bytes of a shard, at the beginning of the returned memory, which the next call overwrites."""
        if sys.platform != "win32" and (fd := source.fileno()) >= 0:
            if self._memory is None:
                # Private: a forked process must not write into the memory of its parent.
                self._memory = mmap.mmap(-1, MAX_BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            view = memoryview(self._memory)
            at = 0
            while at < length and (got := os.preadv(fd, [view[at:length]], offset + at)):
                at += got
            # If the shard became shorter, behind its end is what was read before.
            return self._memory if at == length else self._memory[:at]
        return b"".join(map(bytes, source.chunks(offset, length)))


class Pack(RecordSource):
    """An open pack. Records are numbered through all shards."""

    def __init__(self, url: str):
        self.url = url
        self._lock = threading.Lock()
        self._pid = -1
        self._numbers: dict[bytes, int] | None = None
        self._crc32c = crc32c_function()
        self._buffer = _ReadBuffer()
        self._indexes: dict[int, ShardIndex] = {}
        self._opened: OrderedDict[int, _OpenShard] = OrderedDict()
        self._connect()
        self.names, self._counts = self._find_shards()
        self._ends: list[int] = []
        total = 0
        for number, count in enumerate(self._counts):
            total += len(self._index(number)) if count is None else count
            self._ends.append(total)

    def __reduce__(self) -> tuple[type[Pack], tuple[str]]:
        return type(self), (self.url,)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        return f"<Pack {self.url}: {len(self)} records in {len(self.names)} shards>"

    def key(self, number: int) -> str:
        shard, record = self._locate(number)
        return self._index(shard).key(record).decode("utf-8", "surrogateescape")

    def iter_keys(self) -> Iterator[str]:
        for shard in range(len(self.names)):
            for key in self._index(shard).keys():  # noqa: SIM118 - it is no dictionary
                yield key.decode("utf-8", "surrogateescape")

    def number_of(self, key: str) -> int:
        """Number of the record with a key; KeyError if there is none."""
        if self._numbers is None:
            numbers: dict[bytes, int] = {}
            for shard in range(len(self.names)):
                start = self._start(shard)
                for record, known_key in enumerate(self._index(shard).keys()):
                    numbers.setdefault(known_key, start + record)
            self._numbers = numbers
        try:
            return self._numbers[key.encode("utf-8", "surrogateescape")]
        except KeyError:
            raise KeyError(f"{self.url} has no record with the key {key!r}") from None

    def __getitem__(self, which: int | str) -> bytes:
        """Content of a record, by its number or its key."""
        if isinstance(which, str):
            return self.read(self.number_of(which))
        return self.read(which + len(self) if which < 0 else which)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Keys and contents of all records, in order."""
        for run in self.runs(1 << 20, 4096):
            yield from zip(self.run_keys(run), self.read_run(run), strict=True)

    def content_size(self, number: int) -> int:
        """Bytes of a record's content."""
        shard, record = self._locate(number)
        return self._index(shard).sizes[record]

    def size_of(self, number: int) -> int:
        """Stored bytes of a record; those of its whole block if it is compressed by block."""
        shard, record = self._locate(number)
        return self._index(shard).lengths[record]

    def read_run(self, run: RecordRun) -> list[bytes]:
        shard, first = self._locate(run.first)
        index = self._index(shard)
        opened = self._open(shard)
        source, reader = opened.source, opened.reader
        end = first + run.count - 1
        low, high = _byte_range(index, first, run.count)
        if source.size != index.shard_bytes:
            raise DamagedShard(
                reader.what, f"it has {source.size} bytes, and its index is of {index.shard_bytes} bytes"
            )
        if run.count > 1 and reader.stores_plain and high - low <= MAX_BUFFER_BYTES:
            offsets, lengths = index.offsets[first : end + 1], index.lengths[first : end + 1]
            try:
                memory = self._buffer.read(source, low, high - low)
            except OSError as e:
                raise error_from_oserror(reader.what, e) from None
            contents = [
                memory[(at := offset - low) : at + length]
                for offset, length in zip(offsets, lengths, strict=True)
            ]
            if array("I", map(self._crc32c, contents)) == index.crcs[first : end + 1]:
                return contents
        # One is damaged, they are compressed, or there is only one.
        data = reader.read_at(low, high - low)
        contents = []
        for number in range(first, end + 1):
            at = index.offsets[number] - low
            stored = data[at : at + index.lengths[number]]
            try:
                content = reader.decode(stored, index.position(number))
            except (ValueError, IndexError) as e:
                offset = index.offsets[number]
                raise unreadable_record(reader.what, e, record=number, offset=offset) from None
            if self._crc32c(content) != index.crcs[number]:
                raise self._damaged(reader, index, number, WRONG_CRC)
            contents.append(content)
        return contents

    def read_soon(self, run: RecordRun) -> bool:
        shard, first = self._locate(run.first)
        if sys.platform == "linux" and (fd := self._open(shard).source.fileno()) >= 0:
            low, high = _byte_range(self._index(shard), first, run.count)
            os.posix_fadvise(fd, low, high - low, os.POSIX_FADV_WILLNEED)
            return True
        return False

    def run_keys(self, run: RecordRun) -> list[str]:
        shard, first = self._locate(run.first)
        return self._index(shard).key_texts(first, run.count)

    def stream(self, number: int) -> Iterator[bytes | memoryview]:
        """Content of a large record in pieces; it is verified when the last piece has been read."""
        shard, record = self._locate(number)
        index = self._index(shard)
        opened = self._open(shard)
        if not opened.reader.stores_plain:
            yield self.read(number)
            return
        crc = 0
        for chunk in opened.source.chunks(index.offsets[record], index.lengths[record]):
            crc = self._crc32c(chunk, crc)
            yield chunk
        if crc != index.crcs[record]:
            raise self._damaged(opened.reader, index, record, WRONG_CRC)

    def runs(self, max_bytes: int, max_records: int) -> list[RecordRun]:
        runs = []
        for shard in range(len(self.names)):
            sizes = self._index(shard).lengths
            runs += runs_of(sizes, self._start(shard), max_bytes, max_records)
        return runs

    def run_identity(self, run: RecordRun) -> str:
        shard, first = self._locate(run.first)
        header = self._index(shard).header
        return f"{self.url}\n{self.names[shard]}\n{header.get('input')}\n{first}+{run.count}"

    def scan(self) -> Iterator[tuple[str, bytes]]:
        """All records as the shards have them, verified by the format's checksums, without indexes."""
        for shard in range(len(self.names)):
            opened = self._open(shard)
            for record in opened.reader.scan():
                yield record.key.decode("utf-8", "surrogateescape"), record.content

    def close(self) -> None:
        with self._lock:
            self._opened.clear()

    # -- shards ----------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Open the storage; again in a forked process, which must not share connections."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._opened = OrderedDict()
        self._backend: Backend
        self._backend, self._path = StorageOpener().open(parse_location(self.url))

    def _find_shards(self) -> tuple[list[str], list[int | None]]:
        """Names of the shards, and how many records each has if the manifest says so."""
        info = self._backend.status(self._path)
        if info is None:
            raise not_found_error(self.url)
        if not info.is_folder:
            self._path, _, name = self._path.rpartition("/")
            if not format_of(name):
                raise not_a_pack(self.url)
            return [name], [None]
        names = {entry.name for entry in self._backend.list_folder(self._path) if not entry.is_folder}
        if MANIFEST in names:
            path = self._in_pack(MANIFEST)
            manifest = Manifest.decode(read_whole(self._backend, path), self._backend.display_path(path))
            return [shard.name for shard in manifest.shards], [shard.records for shard in manifest.shards]
        shards = sorted(filter(format_of, names))
        if any(index_name(name) in names for name in shards):
            raise unfinished_pack(self.url)  # another program's shards have no such index
        if HAR_MASTER_INDEX in names and HAR_INDEX in names:
            files = self._har_files()
            return list(files), [len(info) for info in files.values()]
        shards = [name for name in shards if format_of(name) != "har"]
        if not shards:
            raise not_a_pack(self.url)
        return shards, [None] * len(shards)

    def _har_files(self) -> dict[str, list[HarFile]]:
        """Files of a Hadoop archive by part, as its own index has them."""
        path = self._in_pack(HAR_INDEX)
        by_part: dict[str, list[HarFile]] = {}
        for file in decode_index(read_whole(self._backend, path), self._backend.display_path(path)):
            by_part.setdefault(file.part, []).append(file)
        return by_part

    def _in_pack(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _start(self, shard: int) -> int:
        return self._ends[shard - 1] if shard else 0

    def _locate(self, number: int) -> tuple[int, int]:
        if not 0 <= number < len(self):
            raise IndexError(f"{self.url} has {len(self)} records, numbered from 0")
        shard = bisect_right(self._ends, number)
        return shard, number - self._start(shard)

    def _index(self, shard: int) -> ShardIndex:
        index = self._indexes.get(shard)
        if index is None:
            self._connect()
            path = self._in_pack(index_name(self.names[shard]))
            what = self._backend.display_path(path)
            if self._backend.status(path) is not None:
                index = ShardIndex(read_whole(self._backend, path), what)
            elif self._counts[shard] is not None and format_of(self.names[shard]) == "tfrecord":
                # Its keys were only there: numbers in their place would be the names of unpacked files.
                raise DamagedShard(what, "the index is missing, which has the keys of the records")
            else:
                index = self._index_by_scan(shard)
            count = self._counts[shard]
            if count is not None and len(index) != count:
                # As a run that packs again meanwhile leaves it: records would be missing without a word.
                raise DamagedShard(what, f"it has {len(index)} records, and {MANIFEST} has {count}")
            self._indexes[shard] = index
        return index

    def _index_by_scan(self, shard: int) -> ShardIndex:
        """Index of a shard that another program wrote: it is read once."""
        opened = self._open(shard)
        builder = IndexBuilder()
        position, last = 0, -1
        for record in opened.reader.scan():
            position = position + 1 if record.offset == last else 0
            last = record.offset
            crc = size = 0
            for chunk in record.chunks():
                crc = self._crc32c(chunk, crc)
                size += len(chunk)
            builder.add(record.key, record.offset, record.length, crc, size, position)
        header: dict[str, object] = {
            "format": format_of(self.names[shard]),
            "shardBytes": opened.source.size,
            "input": opened.source.key,
        }
        return ShardIndex(builder.encode(header), opened.reader.what)

    def _open(self, shard: int) -> _OpenShard:
        self._connect()
        with self._lock:
            opened = self._opened.get(shard)
            if opened is not None:
                self._opened.move_to_end(shard)
                return opened
            path = self._in_pack(self.names[shard])
            what = self._backend.display_path(path)
            if self._backend.status(path) is None:
                raise DamagedShard(what, "the shard is missing")
            source = self._backend.open(path)

            def read_at(offset: int, length: int) -> bytes:
                length = max(0, min(length, source.size - offset))
                if source.fileno() >= 0 and sys.platform != "win32":
                    try:
                        data = os.pread(source.fileno(), length, offset)
                    except OSError as e:
                        raise error_from_oserror(what, e) from None
                    if len(data) == length:
                        return data
                return b"".join(map(bytes, source.chunks(offset, length)))

            name = self.names[shard]
            reader: ShardReader
            if format_of(name) == "har":
                reader = HarReader(read_at, source.size, what, lambda: self._har_files().get(name, []))
            else:
                reader = open_reader(format_of(name), read_at, source.size, what)
            self._opened[shard] = opened = _OpenShard(source, reader)
            if len(self._opened) > MAX_OPEN_SHARDS:
                self._opened.popitem(last=False)
            return opened

    def _damaged(self, reader: ShardReader, index: ShardIndex, number: int, reason: str) -> DamagedShard:
        return DamagedShard(reader.what, reason, record=number, offset=index.offsets[number])


def _byte_range(index: ShardIndex, first: int, count: int) -> tuple[int, int]:
    """Where consecutive records begin and end in their shard."""
    last = first + count - 1
    return index.offsets[first], index.offsets[last] + index.lengths[last]


def open_pack(url: str | os.PathLike[str]) -> Pack:
    """Open a pack by its address: a folder that ``pai pack`` wrote, a folder of shards, or one shard.

    >>> pack = open_pack("pai://team/0/alice/images.pack")
    >>> pack[0], pack["cats/1.jpg"], len(pack)
    """
    return Pack(os.fspath(url))
