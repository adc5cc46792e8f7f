"""Interface of a shard format: how records are written to a shard and found in it."""

from __future__ import annotations

from openpaisdk.data.record_checksum import crc32c_function
from openpaisdk.data.shard_index import IndexBuilder
from openpaisdk.storage.file_info import format_size
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Content = Iterable[bytes | memoryview]
    ReadAt = Callable[[int, int], bytes]
    """Bytes of a shard: offset and length. Fewer than asked for only at the end of the shard."""

MAX_COMPRESSED_RECORD_BYTES = 32 << 20
"""A record is compressed in memory, in several copies; a larger one can only be stored as it is."""
_CHUNK_BYTES = 1 << 20


class ShardWriter:
    """Writes one shard to ``write``, and notes in ``index`` where each record is."""

    compressions: tuple[str, ...] = ("none",)
    overhead = 0
    """About how many bytes a record takes in addition to its content and its key."""

    def __init__(self, write: Callable[[bytes | memoryview], None], *, compression: str, identity: bytes):
        """``identity``: 16 bytes that depend on the shard's input, for formats that need a marker."""
        self._write = write
        self.compression = compression
        self.identity = identity
        self.offset = 0
        self.index = IndexBuilder()
        self.crc32c = crc32c_function()

    def write(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.offset += len(data)

    def begin(self) -> None:
        """Write what precedes the first record."""

    def add(self, key: bytes, size: int, content: Content) -> None:
        """Write one record; ``content`` has exactly ``size`` bytes."""
        raise NotImplementedError

    def end(self) -> None:
        """Write what follows the last record."""

    def add_whole(self, keys: Sequence[bytes], contents: Sequence[bytes | memoryview]) -> None:
        """Write records whose contents are in memory."""
        for key, content in zip(keys, contents, strict=True):
            self.add(key, len(content), (content,))

    def copy(self, content: Content) -> int:
        """Write a content as it is; returns its CRC-32C."""
        crc = 0
        for chunk in content:
            crc = self.crc32c(chunk, crc)
            self.write(chunk)
        return crc

    def in_memory(self, key: bytes, size: int, content: Content) -> bytes:
        """The whole content, for a record that is compressed."""
        if size > MAX_COMPRESSED_RECORD_BYTES:
            raise UsageError(
                f"{key.decode('utf-8', 'replace')} has {format_size(size)}; records above "
                f"{format_size(MAX_COMPRESSED_RECORD_BYTES)} cannot be compressed.",
                hint="Pack it with --compression none.",
            )
        return b"".join(map(bytes, content))


class FoundRecord:
    """A record that was found by reading a shard: its key, where it is, and its content.

    ``content`` is decoded, or what reads it from the shard, piece by piece.
    """

    __slots__ = ("_content", "key", "length", "offset")

    def __init__(self, key: bytes, offset: int, length: int, content: bytes | ReadAt):
        self.key = key
        self.offset = offset
        self.length = length
        self._content = content

    def chunks(self) -> Iterator[bytes]:
        if isinstance(self._content, bytes):
            yield self._content
        else:
            yield from read_chunks(self._content, self.offset, self.length)

    @property
    def content(self) -> bytes:
        return b"".join(self.chunks())


def read_chunks(read_at: ReadAt, offset: int, length: int) -> Iterator[bytes]:
    """A range of a shard in pieces of bounded size. Raises ValueError where the shard ends before it."""
    end = offset + length
    while offset < end:
        chunk = read_at(offset, min(_CHUNK_BYTES, end - offset))
        if not chunk:
            raise ValueError("the shard is truncated")
        yield chunk
        offset += len(chunk)


class ShardReader:
    """Reads records of one shard: those that an index names, or all of them without an index."""

    def __init__(self, read_at: ReadAt, size: int, what: str):
        """``what`` names the shard in errors."""
        self.read_at = read_at
        self.size = size
        self.what = what

    @property
    def stores_plain(self) -> bool:
        """Whether the range that an index names is the content itself."""
        return True

    def decode(self, stored: bytes, position: int) -> bytes:
        """Content of a record from the range that the index names; ``position`` within a block."""
        return stored

    def scan(self) -> Iterator[FoundRecord]:
        """All records in order. A damaged or truncated shard raises ``DamagedShard``."""
        raise NotImplementedError
