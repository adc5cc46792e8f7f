"""Writes one shard of a pack from its files. Runs in a thread of ``pai pack`` or in a process of its own."""

from __future__ import annotations

import hashlib
import struct
from contextlib import contextmanager
from itertools import chain

from openpaisdk.data.buffered_upload import BufferedUpload
from openpaisdk.data.file_contents import (
    file_batches,
    is_large,
    read_large_file,
    read_small_files,
    read_whole,
)
from openpaisdk.data.formats.registry import writer_class
from openpaisdk.data.manifest import ShardEntry, index_name, shard_name
from openpaisdk.data.shard_index import ShardIndex
from paiprotocol.errors import PaiError
from paiprotocol.transfer import pack_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.data.formats.base import Content, ShardWriter
    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import FileStat

    Advance = Callable[[int, int], None]
    """Called with the number of files and bytes that were packed since the last call."""

_BATCH = pack_format.MAX_PACK_FILES, pack_format.PACK_FULL_BYTES
"""Files and bytes that are fetched from a storage at once."""
_LOCAL_BATCH = 100, 96 << 10
"""The same for local files: memory that is at hand, and in the processor's cache until it is written."""


class ShardInput:
    """The files of one shard."""

    __slots__ = ("files", "keys", "number")

    def __init__(self, number: int):
        self.number = number
        self.files: list[tuple[str, FileStat]] = []
        self.keys: list[bytes] = []

    def __getstate__(self) -> tuple[object, ...]:
        # In columns: a third of the time of pickling each file.
        paths, stats = zip(*self.files, strict=True)
        numbers = struct.pack(f"<{3 * len(stats)}q", *chain.from_iterable(stats))
        return self.number, "\0".join(paths), numbers, self.keys

    def __setstate__(self, state: tuple[int, str, bytes, list[bytes]]) -> None:
        self.number, paths, stats, self.keys = state
        self.files = list(zip(paths.split("\0"), struct.iter_unpack("<qqq", stats), strict=True))


class ShardPacker:
    """Shards of one pack: where their files come from, where they go, and their format."""

    def __init__(
        self,
        source: Backend,
        source_path: str,
        target: Backend,
        target_path: str,
        format_name: str,
        compression: str,
    ):
        self.source = source
        self.source_path = source_path
        self.target = target
        self.target_path = target_path
        self.format = format_name
        self.compression = compression

    def find(self, shard: ShardInput) -> ShardEntry | None:
        """The shard as an earlier run wrote it from the same files."""
        name = shard_name(shard.number, self.format)
        try:
            path = self.path(index_name(name))
            info = self.target.status(path)
            if info is None or info.is_folder:
                return None
            index = ShardIndex(read_whole(self.target, path), self.target.display_path(path))
        except PaiError:
            return None  # it is written again
        stored = self.target.status(self.path(name))
        is_same = index.header.get("input") == self._input_hash(shard, self._identity(shard))
        if not is_same or stored is None or stored.size != index.shard_bytes:
            return None
        return ShardEntry(name, len(shard.files), stored.size)

    def write(self, shard: ShardInput, advance: Advance) -> ShardEntry:
        """Write the shard, then its index. An error of ``advance`` ends it, and nothing is left of it."""
        name, identity = shard_name(shard.number, self.format), self._identity(shard)
        with self.writing(name) as upload:
            writer = writer_class(self.format)(upload.write, compression=self.compression, identity=identity)
            self._write_records(writer, shard, advance)
        header = {
            "format": self.format,
            "compression": self.compression,
            "shardBytes": writer.offset,
            "input": self._input_hash(shard, identity),
        }
        self.write_small(index_name(name), writer.index.encode(header))
        return ShardEntry(name, len(shard.files), writer.offset)

    def _write_records(self, writer: ShardWriter, shard: ShardInput, advance: Advance) -> None:
        writer.begin()
        bounds = _LOCAL_BATCH if self.source.is_local else _BATCH
        for batch in file_batches(shard.files, *bounds):
            files, keys = shard.files[batch], shard.keys[batch]
            if is_large(files[0]):
                content = read_large_file(self.source, self.source_path, files[0])
                writer.add(keys[0], files[0][1][0], _counted(content, advance))
                advance(1, 0)
            else:
                contents = read_small_files(self.source, self.source_path, files)
                writer.add_whole(keys, contents)
                advance(len(files), sum(map(len, contents)))
        writer.end()

    def _identity(self, shard: ShardInput) -> bytes:
        """Identity of a shard: it depends on what is packed, not on when it was written."""
        sizes = [file_stat[0] for _, file_stat in shard.files]
        numbers = struct.pack(f"<{2 * len(sizes)}Q", *map(len, shard.keys), *sizes)
        parts = [f"{self.format} {self.compression}\n".encode(), numbers, *shard.keys]
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    def _input_hash(self, shard: ShardInput, identity: bytes) -> str:
        """Hash of a shard's input: it also depends on the files' paths and times."""
        times = [file_stat[1] for _, file_stat in shard.files]
        paths = "\0".join([path for path, _ in shard.files]).encode("utf-8", "surrogateescape")
        parts = (identity, struct.pack(f"<{len(times)}q", *times), paths)
        return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()

    # -- target ----------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Path of a file of the pack on the target."""
        return f"{self.target_path.rstrip('/')}/{name}"

    @contextmanager
    def writing(self, name: str) -> Iterator[BufferedUpload]:
        """A file of the pack being written; it appears when all of it was written without an error."""
        upload = BufferedUpload(self.target, self.path(name))
        try:
            yield upload
            upload.finish()
        except BaseException:
            upload.abandon()
            raise

    def write_small(self, name: str, content: bytes) -> None:
        with self.writing(name) as upload:
            upload.write(content)


def _counted(content: Content, advance: Advance) -> Content:
    """The content of a large file, whose pieces count for the progress."""
    for chunk in content:
        advance(0, len(chunk))
        yield chunk
