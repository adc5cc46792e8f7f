"""TFRecord shards: each record is its length, the masked CRC-32C of the length, the content, and the masked
CRC-32C of the content.

A TFRecord has no keys: they are in the index. Without an index a record's key is its number.
"""

from __future__ import annotations

from struct import Struct

from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.formats.base import FoundRecord, ShardReader, ShardWriter, read_chunks
from openpaisdk.data.record_checksum import crc32c_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.data.formats.base import Content

_LENGTH = Struct("<Q")
_CRC = Struct("<I")
HEADER_BYTES = _LENGTH.size + _CRC.size
_MASK_DELTA = 0xA282EAD8


def masked(crc: int) -> int:
    """The CRC as TFRecord stores it: rotated, so that the CRC of data with CRCs in it is no special case."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def record_header(size: int, crc32c: Callable[..., int]) -> bytes:
    length = _LENGTH.pack(size)
    return length + _CRC.pack(masked(crc32c(length)))


class TfrecordWriter(ShardWriter):
    overhead = HEADER_BYTES + _CRC.size

    def add(self, key: bytes, size: int, content: Content) -> None:
        self.write(record_header(size, self.crc32c))
        offset = self.offset
        crc = self.copy(content)
        self.write(_CRC.pack(masked(crc)))
        self.index.add(key, offset, size, crc, size)


class TfrecordReader(ShardReader):
    def scan(self) -> Iterator[FoundRecord]:
        crc32c = crc32c_function()
        at = number = 0
        while at < self.size:

            def damaged(reason: str, at: int = at, number: int = number) -> DamagedShard:
                return DamagedShard(self.what, reason, record=number, offset=at)

            header = self.read_at(at, HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                raise damaged("the shard is truncated")
            length, length_crc = _LENGTH.unpack_from(header)[0], _CRC.unpack_from(header, _LENGTH.size)[0]
            if masked(crc32c(header[: _LENGTH.size])) != length_crc:
                raise damaged("the CRC of the record's length is wrong")
            if length > self.size - at:
                raise damaged("the shard is truncated")
            crc = 0
            try:
                for chunk in read_chunks(self.read_at, at + HEADER_BYTES, length):
                    crc = crc32c(chunk, crc)
            except ValueError as e:
                raise damaged(str(e)) from None
            stored_crc = self.read_at(at + HEADER_BYTES + length, _CRC.size)
            if len(stored_crc) < _CRC.size:
                raise damaged("the shard is truncated")
            if masked(crc) != _CRC.unpack(stored_crc)[0]:
                raise damaged("the CRC of the record is wrong")
            yield FoundRecord(b"%d" % number, at + HEADER_BYTES, length, self.read_at)
            at += HEADER_BYTES + length + _CRC.size
            number += 1
