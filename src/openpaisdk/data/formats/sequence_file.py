"""SequenceFile shards, version 6: the key is a Text, the content a BytesWritable.

Compression is by record (each content on its own) or by block (about a megabyte of records together). Files
of other programs can be read, too: of their keys and values Text, BytesWritable and NullWritable are decoded,
others are returned as they were serialized.
"""

from __future__ import annotations

from struct import Struct

from openpaisdk.data.errors import DamagedShard, OversizedContent, unreadable_record
from openpaisdk.data.formats.base import MAX_COMPRESSED_RECORD_BYTES, FoundRecord, ShardReader, ShardWriter
from openpaisdk.data.formats.hadoop_codecs import CLASS_OF_CODEC, codec_of_class, compress, decompress
from openpaisdk.storage.file_info import format_size
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.data.formats.base import Content, ReadAt

MAGIC = b"SEQ\x06"
TEXT = "org.apache.hadoop.io.Text"
BYTES_WRITABLE = "org.apache.hadoop.io.BytesWritable"
NULL_WRITABLE = "org.apache.hadoop.io.NullWritable"
SYNC_BYTES = 16
SYNC_DISTANCE = 2000
"""Hadoop writes a sync marker after at least this many bytes, so that a reader can begin in the middle."""
BLOCK_BYTES = 1_000_000
"""A block is compressed when its records reach this size, as by default in Hadoop."""
MAX_RECORD_BYTES = (1 << 31) - 1 - (1 << 16)
"""Lengths are signed 32-bit numbers, and the key counts, too."""
MAX_KEY_BYTES = 1 << 20
MAX_DECODED_BYTES = MAX_COMPRESSED_RECORD_BYTES + (1 << 20)
"""Of a record, or of all records of a block: blocks of other programs may be larger than ours."""
MAX_RECORDS_PER_BLOCK = 1 << 19
"""Each takes about 150 bytes of memory, even without a key and a content."""
_INT = Struct(">i")
_SYNC_ESCAPE = _INT.pack(-1)
# Of a BytesWritable four bytes precede the content, of a Text up to nine.
_MAX_PREFIX_BYTES = 9


def vint(value: int) -> bytes:
    """A number of variable length, as Hadoop's WritableUtils writes it."""
    if -112 <= value <= 127:
        return Struct(">b").pack(value)
    first, value = (-112, value) if value >= 0 else (-120, ~value)
    count = (value.bit_length() + 7) // 8
    return Struct(">b").pack(first - count) + value.to_bytes(count, "big")


def read_vint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and the offset after it. Raises IndexError at the end of the data."""
    first = data[at]
    if first < 128 or first >= 144:
        return (first if first < 128 else first - 256), at + 1
    negative = first < 136
    count = 136 - first if negative else 144 - first
    if at + 1 + count > len(data):
        raise IndexError
    value = int.from_bytes(data[at + 1 : at + 1 + count], "big")
    return (~value if negative else value), at + 1 + count


def _text(value: bytes) -> bytes:
    return vint(len(value)) + value


class SequenceFileWriter(ShardWriter):
    compressions = ("none", *(f"{by}-{codec}" for by in ("record", "block") for codec in CLASS_OF_CODEC))
    overhead = 24

    def begin(self) -> None:
        by, _, codec = self.compression.partition("-")
        self._codec = codec
        self._by_block = by == "block"
        self._block = _Block()
        parts = [MAGIC, _text(TEXT.encode()), _text(BYTES_WRITABLE.encode())]
        parts.append(bytes([bool(codec), self._by_block]))
        if codec:
            parts.append(_text(CLASS_OF_CODEC[codec].encode()))
        parts += [_INT.pack(0), self.identity]  # no metadata
        self.write(b"".join(parts))
        self._last_sync = self.offset

    def add(self, key: bytes, size: int, content: Content) -> None:
        if size > MAX_RECORD_BYTES:
            raise UsageError(
                f"{key.decode('utf-8', 'replace')} has {format_size(size)}; "
                f"a record of a SequenceFile has at most {format_size(MAX_RECORD_BYTES)}.",
                hint="Pack it with --format tar or --format tfrecord.",
            )
        stored_key = _text(key)
        if self._by_block:
            plain = self.in_memory(key, size, content)
            self._block.add(key, stored_key, plain, self.crc32c(plain))
            if self._block.size >= BLOCK_BYTES:
                self._write_block()
            return
        if self.offset >= self._last_sync + SYNC_DISTANCE:
            self.write(_SYNC_ESCAPE + self.identity)
            self._last_sync = self.offset
        if self._codec:
            plain = self.in_memory(key, size, content)
            value = compress(self._codec, _INT.pack(size) + plain)
            self.write(_INT.pack(len(stored_key) + len(value)) + _INT.pack(len(stored_key)) + stored_key)
            self.index.add(key, self.offset, len(value), self.crc32c(plain), size)
            self.write(value)
            return
        head = _INT.pack(len(stored_key) + _INT.size + size) + _INT.pack(len(stored_key)) + stored_key
        self.write(head + _INT.pack(size))
        offset = self.offset
        self.index.add(key, offset, size, self.copy(content), size)

    def end(self) -> None:
        if self._by_block and self._block.entries:
            self._write_block()

    def _write_block(self) -> None:
        block, self._block = self._block, _Block()
        offset = self.offset
        self.write(_SYNC_ESCAPE + self.identity + vint(len(block.entries)))
        for buffer in block.buffers:
            data = compress(self._codec, bytes(buffer))
            self.write(vint(len(data)) + data)
        for position, (key, size, crc) in enumerate(block.entries):
            self.index.add(key, offset, self.offset - offset, crc, size, position)


class _Block:
    """Records that are compressed together: lengths of the keys, keys, lengths of the values, values."""

    def __init__(self) -> None:
        self.buffers = (bytearray(), bytearray(), bytearray(), bytearray())
        self.entries: list[tuple[bytes, int, int]] = []
        self.size = 0

    def add(self, key: bytes, stored_key: bytes, content: bytes, crc: int) -> None:
        key_lengths, keys, value_lengths, values = self.buffers
        key_lengths += vint(len(stored_key))
        keys += stored_key
        value_lengths += vint(_INT.size + len(content))
        values += _INT.pack(len(content)) + content
        self.entries.append((key, len(content), crc))
        self.size += len(stored_key) + len(content)


class SequenceFileReader(ShardReader):
    def __init__(self, read_at: ReadAt, size: int, what: str):
        super().__init__(read_at, size, what)
        self._header: _Header | None = None
        self._last_block: tuple[bytes, list[tuple[bytes, bytes]]] = (b"", [])

    @property
    def header(self) -> _Header:
        if self._header is None:
            self._header = _Header.parse(self.read_at(0, 1 << 16), self.what)
        return self._header

    @property
    def stores_plain(self) -> bool:
        return not self.header.codec

    def decode(self, stored: bytes, position: int) -> bytes:
        header = self.header
        if header.by_block:
            if self._last_block[0] != stored:
                self._last_block = stored, self._decode_block(stored)
            return self._last_block[1][position][1]
        if header.codec:
            return _content(decompress(header.codec, stored, MAX_DECODED_BYTES), header.value_class)
        return stored

    def _decode_block(self, stored: bytes) -> list[tuple[bytes, bytes]]:
        """Keys and contents of a block that begins with its sync marker. Raises ValueError if damaged."""
        header = self.header
        try:
            count, at = read_vint(stored, _INT.size + SYNC_BYTES)
            if count < 1:
                raise ValueError("a block has no records")
            if count > MAX_RECORDS_PER_BLOCK:
                raise OversizedContent(f"the block has more than {MAX_RECORDS_PER_BLOCK} records")
            buffers = []
            remaining = MAX_DECODED_BYTES
            view = memoryview(stored)
            for _ in range(4):
                length, at = read_vint(stored, at)
                buffers.append(decompress(header.codec, view[at : at + length], remaining))
                at += length
                remaining -= len(buffers[-1])
            keys = _split(buffers[1], buffers[0], count)
            values = _split(buffers[3], buffers[2], count)
        except IndexError:
            raise ValueError("the block is truncated") from None
        return [
            (_content(key, header.key_class), _content(value, header.value_class))
            for key, value in zip(keys, values, strict=True)
        ]

    def scan(self) -> Iterator[FoundRecord]:
        header = self.header
        at = header.size
        number = 0
        while at < self.size:
            try:
                after = at
                for record, after in self._records_at(at):  # noqa: B007 - it is used after the loop
                    yield record
                    number += 1
                at = after
            except (ValueError, IndexError) as e:
                raise unreadable_record(self.what, e, record=number, offset=at) from None

    def _records_at(self, at: int) -> Iterator[tuple[FoundRecord, int]]:
        """The record at an offset, or the records of the block there, each with the offset after it."""
        header = self.header
        length = self._int(at)
        start = at
        if length == -1:
            if self.read_at(at + _INT.size, SYNC_BYTES) != header.sync:
                raise ValueError("the sync marker is wrong")
            at += _INT.size + SYNC_BYTES
            if header.by_block:
                end = self._end_of_block(at)
                self._check_stored(end - start)
                stored = self.read_at(start, end - start)
                for key, content in self._decode_block(stored):
                    yield FoundRecord(key, start, end - start, content), end
                return
            length = self._int(at)
        elif header.by_block:
            raise ValueError("a sync marker is missing")
        key_length = self._int(at + _INT.size)
        if not 0 <= key_length <= length or length > self.size - at:
            raise ValueError("the length of the record is impossible")
        if key_length > MAX_KEY_BYTES:
            raise OversizedContent(f"its key is longer than {format_size(MAX_KEY_BYTES)}")
        value_at, end = at + 2 * _INT.size + key_length, at + 2 * _INT.size + length
        if end > self.size:
            raise ValueError("it is truncated")
        key = _content(self.read_at(value_at - key_length, key_length), header.key_class)
        if header.codec:
            self._check_stored(end - value_at)
            value = self.read_at(value_at, end - value_at)
            yield FoundRecord(key, value_at, len(value), self.decode(value, 0)), end
        else:
            head = self.read_at(value_at, min(_MAX_PREFIX_BYTES, end - value_at))
            value_at += _prefix_bytes(head, end - value_at, header.value_class)
            yield FoundRecord(key, value_at, end - value_at, self.read_at), end

    @staticmethod
    def _check_stored(length: int) -> None:
        if length > MAX_DECODED_BYTES:
            raise OversizedContent(f"its compressed data is larger than {format_size(MAX_DECODED_BYTES)}")

    def _end_of_block(self, at: int) -> int:
        _, at = self._vint(at)
        for _ in range(4):
            length, at = self._vint(at)
            if length < 0 or length > self.size - at:
                raise ValueError("the length of a block is impossible")
            at += length
        return at

    def _vint(self, at: int) -> tuple[int, int]:
        value, used = read_vint(self.read_at(at, 9), 0)
        return value, at + used

    def _int(self, at: int) -> int:
        data = self.read_at(at, _INT.size)
        if len(data) < _INT.size:
            raise ValueError("it is truncated")
        value: int = _INT.unpack(data)[0]
        return value


class _Header:
    __slots__ = ("by_block", "codec", "key_class", "size", "sync", "value_class")

    def __init__(self, key_class: str, value_class: str, codec: str, by_block: bool, sync: bytes, size: int):
        self.key_class = key_class
        self.value_class = value_class
        self.codec = codec
        self.by_block = by_block
        self.sync = sync
        self.size = size

    @classmethod
    def parse(cls, data: bytes, what: str) -> _Header:
        if data[:4] != MAGIC:
            raise DamagedShard(what, "this is not a SequenceFile of version 6", offset=0)
        at = len(MAGIC)

        def text() -> str:
            nonlocal at
            length, at = read_vint(data, at)
            value = data[at : at + length]
            if length < 0 or len(value) < length:
                raise IndexError
            at += length
            return value.decode("utf-8", "replace")

        try:
            key_class, value_class = text(), text()
            is_compressed, by_block = bool(data[at]), bool(data[at + 1])
            at += 2
            codec = codec_of_class(text()) if is_compressed else ""
            count = _INT.unpack(data[at : at + _INT.size])[0] if len(data) >= at + _INT.size else -1
            at += _INT.size
            for _ in range(2 * count):  # metadata: names and values
                text()
        except IndexError:
            count = -1
        if count < 0 or len(data) < at + SYNC_BYTES:
            raise DamagedShard(what, "its header is truncated", offset=0)
        sync = data[at : at + SYNC_BYTES]
        return cls(key_class, value_class, codec, is_compressed and by_block, sync, at + SYNC_BYTES)


def _content(serialized: bytes | memoryview, class_name: str) -> bytes:
    """The bytes of a Text or BytesWritable; of any other class as it was serialized."""
    return bytes(serialized[_prefix_bytes(serialized, len(serialized), class_name) :])


def _prefix_bytes(head: bytes | memoryview, length: int, class_name: str) -> int:
    """How many of the serialized bytes precede the content; ``head`` has the first ones of ``length``."""
    if class_name == BYTES_WRITABLE:
        if len(head) < _INT.size or _INT.unpack_from(head)[0] != length - _INT.size:
            raise ValueError("the length of a BytesWritable is wrong")
        return _INT.size
    if class_name == TEXT:
        content_length, at = read_vint(head, 0)
        if content_length != length - at:
            raise ValueError("the length of a Text is wrong")
        return at
    return length if class_name == NULL_WRITABLE else 0


def _split(data: bytes, lengths: bytes, count: int) -> list[memoryview]:
    parts = []
    at = in_lengths = 0
    view = memoryview(data)
    for _ in range(count):
        length, in_lengths = read_vint(lengths, in_lengths)
        if length < 0 or at + length > len(data):
            raise ValueError("the lengths of a block are wrong")
        parts.append(view[at : at + length])
        at += length
    return parts
