"""Index of a shard: where each record is, its CRC-32C and its key.

The file ``<shard>.index`` begins with a line of magic and a line of JSON. Then come little-endian columns,
one value per record (offset, stored length, CRC-32C of the content, end of the key; of a compressed shard
also the size of the content and the position within its block), the keys, and the CRC-32 of everything
before. It is written after its shard: a shard with an index is complete.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from array import array
from itertools import accumulate, chain, pairwise

from openpaisdk.data.errors import DamagedShard, index_of_other_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUFFIX = ".index"
MAGIC = b"PAI shard index 2\n"
_ANY_MAGIC = re.compile(rb"PAI shard index (\d{1,9})\n")
_CRC_BYTES = 4


class IndexBuilder:
    """Collects the columns of an index."""

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.lengths = array("Q")
        self.crcs = array("I")
        self.positions = array("I")
        self.sizes = array("Q")
        self.key_ends = array("Q")
        self._keys = bytearray()

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, key: bytes, offset: int, length: int, crc: int, size: int, position: int = 0) -> None:
        """``length``: of the stored range; ``size``: of the content, which may be compressed there."""
        self.offsets.append(offset)
        self.lengths.append(length)
        self.crcs.append(crc)
        self.positions.append(position)
        self._keys += key
        self.key_ends.append(len(self._keys))
        self.sizes.append(size)

    def extend(self, keys: Sequence[bytes], offsets: list[int], sizes: list[int], crcs: list[int]) -> None:
        """Add records that are stored as they are."""
        self.offsets.extend(offsets)
        self.lengths.extend(sizes)
        self.crcs.extend(crcs)
        self.positions.extend([0] * len(keys))
        self.key_ends.extend(accumulate(map(len, keys[1:]), initial=len(self._keys) + len(keys[0])))
        self._keys += b"".join(keys)
        self.sizes.extend(sizes)

    def encode(self, header: dict[str, object]) -> bytes:
        is_compressed = self.sizes != self.lengths
        line = json.dumps({**header, "records": len(self), "compressed": is_compressed}, sort_keys=True)
        columns = [self.offsets, self.lengths, self.crcs, self.key_ends]
        if is_compressed:
            columns += [self.sizes, self.positions]
        data = b"".join((MAGIC, line.encode(), b"\n", *map(_little_endian, columns), self._keys))
        return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


class ShardIndex:
    """A decoded index. Records are numbered from 0."""

    def __init__(self, data: bytes, what: str):
        """``what`` names the index in errors."""
        magic = _ANY_MAGIC.match(data)
        if magic is not None and magic[0] != MAGIC:
            raise index_of_other_version(what, int(magic[1]))
        if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _CRC_BYTES:
            raise DamagedShard(what, "this is not an index of a shard, or a truncated one")
        body = memoryview(data)[:-_CRC_BYTES]
        if zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "little"):
            raise DamagedShard(what, "the index is damaged")
        try:
            end = data.index(b"\n", len(MAGIC))
            self.header: dict[str, object] = json.loads(data[len(MAGIC) : end])
            count = int(str(self.header["records"]))
            self.shard_bytes = int(str(self.header["shardBytes"]))
            is_compressed = bool(self.header["compressed"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamagedShard(what, "the index is damaged") from None
        row_bytes = 8 + 8 + 4 + 8 + (8 + 4 if is_compressed else 0)
        if not 0 <= count * row_bytes <= len(body) - end:
            raise DamagedShard(what, "the index is truncated")
        columns = body[end + 1 :]

        def column(code: str) -> array[int]:
            nonlocal columns
            values: array[int] = array(code)
            size = count * values.itemsize
            values.frombytes(columns[:size])
            columns = columns[size:]
            if sys.byteorder == "big":
                values.byteswap()
            return values

        self.offsets = column("Q")
        self.lengths = column("Q")
        self.crcs = column("I")
        self.key_ends = column("Q")
        self.sizes = column("Q") if is_compressed else self.lengths
        self._positions = column("I") if is_compressed else None
        keys = bytes(columns)
        # One of the two is kept: of all the shards of a large pack they are most of the memory.
        self._ascii = keys.decode() if keys.isascii() else None
        self._keys = keys if self._ascii is None else b""

    def __len__(self) -> int:
        return len(self.offsets)

    def key(self, number: int) -> bytes:
        return self._key_at(self.key_ends[number - 1] if number else 0, self.key_ends[number])

    def keys(self) -> Iterator[bytes]:
        return (self._key_at(start, end) for start, end in pairwise(chain((0,), self.key_ends)))

    def _key_at(self, start: int, end: int) -> bytes:
        return self._keys[start:end] if self._ascii is None else self._ascii[start:end].encode()

    def key_texts(self, first: int, count: int) -> list[str]:
        """Keys of consecutive records."""
        start = self.key_ends[first - 1] if first else 0
        ends = self.key_ends[first : first + count]
        if self._ascii is not None:
            return [self._ascii[a:b] for a, b in pairwise(chain((start,), ends))]
        return [
            self._keys[a:b].decode("utf-8", "surrogateescape") for a, b in pairwise(chain((start,), ends))
        ]

    def position(self, number: int) -> int:
        """Number of the record within its compressed block."""
        return self._positions[number] if self._positions is not None else 0


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
