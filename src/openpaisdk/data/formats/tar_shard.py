"""Tar shards in WebDataset's layout: one member per record, the key is the member's name.

Members have fixed modes and times, so that the same files give the same bytes.
"""

from __future__ import annotations

from io import RawIOBase

from openpaisdk.data.errors import DamagedShard
from openpaisdk.data.formats.base import FoundRecord, ShardReader, ShardWriter
from paiprotocol.transfer import tar_writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.data.formats.base import Content

_MODE = 0o644
_ZEROS = bytes(tar_writer.BLOCK)


class TarWriter(ShardWriter):
    overhead = tar_writer.BLOCK + tar_writer.BLOCK // 2

    def add(self, key: bytes, size: int, content: Content) -> None:
        header = tar_writer.file_header(key, _MODE, size)
        self.write(header)
        offset = self.offset
        crc = self.copy(content)
        self.write(tar_writer.padding(size))
        self.index.add(key, offset, size, crc, size)

    def add_whole(self, keys: Sequence[bytes], contents: Sequence[bytes | memoryview]) -> None:
        at = self.offset
        parts: list[bytes | memoryview] = []
        offsets = []
        sizes = list(map(len, contents))
        for key, content, size in zip(keys, contents, sizes, strict=True):
            header = tar_writer.file_header(key, _MODE, size)
            at += len(header)
            offsets.append(at)
            at += size
            parts.append(header)
            parts.append(content)
            if odd := size % tar_writer.BLOCK:
                parts.append(_ZEROS[odd:])
                at += tar_writer.BLOCK - odd
        self.write(b"".join(parts))
        self.index.extend(keys, offsets, sizes, list(map(self.crc32c, contents)))

    def end(self) -> None:
        self.write(tar_writer.END)


class TarReader(ShardReader):
    def scan(self) -> Iterator[FoundRecord]:
        import tarfile  # takes longer than to pack a thousand files

        from pairuntime.transport.bounded_tar import BoundedTarFile

        try:
            archive = BoundedTarFile(fileobj=_ShardFile(self), errors="surrogateescape")
            for member in archive.one_by_one():
                if not member.isreg():
                    continue
                if member.issparse():
                    raise DamagedShard(
                        self.what, f"{member.name[:200]!r} is a sparse file", offset=member.offset
                    )
                if member.offset_data + member.size > self.size:
                    raise DamagedShard(self.what, "the shard is truncated", offset=member.offset_data)
                key = member.name.encode("utf-8", "surrogateescape")
                yield FoundRecord(key, member.offset_data, member.size, self.read_at)
        except tarfile.TarError as e:
            raise DamagedShard(self.what, f"this is not a whole tar file ({e})") from None


class _ShardFile(RawIOBase):
    """The shard as a file, for tarfile: only headers are read through it."""

    def __init__(self, reader: ShardReader):
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0 if whence == 0 else self._at if whence == 1 else self._reader.size)
        return self._at

    def read(self, size: int = -1) -> bytes:
        remaining = max(0, self._reader.size - self._at)
        data = self._reader.read_at(self._at, remaining if size < 0 else min(size, remaining))
        self._at += len(data)
        return data
