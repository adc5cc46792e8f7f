"""Packs the files of a folder into shards: ``pai pack``.

The same files give the same bytes. A shard is complete when its index exists; the index has a hash of the
shard's input, so that a later run keeps what is already there. A pack is complete when its manifest exists:
it is removed before a shard is replaced.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager

from openpaisdk.data.buffered_upload import BufferedUpload
from openpaisdk.data.file_contents import read_files, read_whole
from openpaisdk.data.formats.registry import writer_class
from openpaisdk.data.manifest import (
    HAR_INDEX,
    HAR_MASTER_INDEX,
    MANIFEST,
    WHOLE_PACK_FILES,
    Manifest,
    ShardEntry,
    index_name,
    is_pack_file,
    shard_name,
)
from openpaisdk.data.shard_index import ShardIndex
from openpaisdk.errors import ConnectionFailed, PaiError, Unavailable, UsageError
from openpaisdk.storage.backends.base import STORAGE_FULL, WriteAccess
from openpaisdk.storage.transfer.executor import TransferProgress
from openpaisdk.storage.transfer.plan import PARTIAL_SUFFIXES
from openpaisdk.storage.transfer.spool import Spool
from openpaisdk.storage.transfer.worker_threads import run_threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.data.formats.base import Content, ShardWriter
    from openpaisdk.data.record_keys import KeyRule
    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import FileStat

DEFAULT_SHARD_BYTES = 256 << 20
MAX_RECORDS_PER_SHARD = 1 << 15
"""Each takes some 400 bytes while its shard is written, and several shards are written at a time."""
_PROGRESS_FILES, _PROGRESS_BYTES = 100, 1 << 20
"""A thread reports its progress, and notices that another one failed, after that much."""
RESUME_HINT = "Complete shards are kept: run the same command again to resume."


class PackOptions:
    """How files become records."""

    __slots__ = ("compression", "format", "jobs", "keys", "shard_bytes")

    def __init__(self, format_name: str, compression: str, keys: KeyRule, shard_bytes: int, jobs: int):
        writer = writer_class(format_name)
        if compression not in writer.compressions:
            known = ", ".join(writer.compressions)
            raise UsageError(f"The format {format_name} has no compression {compression!r}; it has: {known}.")
        self.format = format_name
        self.compression = compression
        self.keys = keys
        self.shard_bytes = shard_bytes
        self.jobs = jobs


class ShardInput:
    """The files of one shard."""

    __slots__ = ("files", "keys", "number")

    def __init__(self, number: int):
        self.number = number
        self.files: list[tuple[str, FileStat]] = []
        self.keys: list[bytes] = []


class PackOperation:
    """One run of ``pai pack``: ``scan``, then ``run``."""

    def __init__(
        self, source: Backend, source_path: str, target: Backend, target_path: str, options: PackOptions
    ):
        self.source = source
        self.source_path = source_path
        self.target = target
        self.target_path = target_path
        self.options = options
        self.files = Spool()
        self.skipped: list[str] = []
        self.kept_shards = 0
        self.progress = TransferProgress()
        self._lock = threading.Lock()
        self._done: dict[int, ShardEntry] = {}
        self._error: BaseException | None = None
        self._outdated: list[str] = []
        """Files about the whole pack, of an earlier run; removed before the first shard is written."""

    def scan(self) -> None:
        """List the files to pack; an error if there are none."""
        for folder in self.source.walk(self.source_path):
            prefix = folder.path + "/" if folder.path else ""
            self.skipped += [prefix + name for name in folder.others]
            for name in sorted(folder.files):
                if not name.endswith(PARTIAL_SUFFIXES):
                    size, mtime_ns, mode = folder.files[name]
                    self.files.add(prefix + name, (size, mtime_ns, mode))
        if not self.files.count:
            raise UsageError(f"{self.source.display_path(self.source_path)} has no files to pack.")
        self.progress = TransferProgress(self.files.count, self.files.size)

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> Manifest:
        """Write all shards, then the manifest. ``watch`` is called ten times a second from this thread."""
        with WriteAccess(self.target, self.target_path):
            self._prepare_target()
            shards = self._shards()
            run_threads(
                lambda: self._work(shards),
                self.options.jobs,
                "pack",
                watch=None if watch is None else lambda: watch(self.progress),
                cancel=self._cancel,
                joins=True,
            )
            if self._error is not None:
                raise _with_hint(self._error)
            manifest = Manifest(
                self.options.format,
                self.options.compression,
                [self._done[number] for number in sorted(self._done)],
            )
            if self.options.format == "har":
                self._write_har_indexes(manifest)
            self._write_small(MANIFEST, manifest.encode())
            self._remove_old_shards(manifest)
        return manifest

    # -- shards ----------------------------------------------------------------------------------

    def _shards(self) -> Iterator[ShardInput]:
        """The files in order, cut into shards. Consumed by one thread at a time."""
        writer = writer_class(self.options.format)
        keys = self.options.keys
        shard = ShardInput(0)
        estimate = 0
        for path, file_stat in self.files:
            key = keys.key(path)
            size = file_stat[0] + len(key) + writer.overhead
            is_full = estimate + size > self.options.shard_bytes
            if shard.files and (is_full or len(shard.files) >= MAX_RECORDS_PER_SHARD):
                # A sample of several files (a.jpg, a.txt) stays in one shard, within reason.
                is_torn = estimate < 2 * self.options.shard_bytes and self._is_one_sample(
                    shard.files[-1][0], path
                )
                if not is_torn or len(shard.files) >= MAX_RECORDS_PER_SHARD:
                    yield shard
                    shard = ShardInput(shard.number + 1)
                    estimate = 0
            shard.files.append((path, file_stat))
            shard.keys.append(key)
            estimate += size
        yield shard

    def _is_one_sample(self, path: str, other: str) -> bool:
        sample = _sample(path)
        return self.options.format == "tar" and bool(sample) and sample == _sample(other)

    def _work(self, shards: Iterator[ShardInput]) -> None:
        while self._error is None:
            try:
                with self._lock:
                    shard = next(shards, None)
                if shard is None:
                    return
                entry = self._kept_shard(shard) or self._write_shard(shard)
                with self._lock:
                    self._done[shard.number] = entry
            except BaseException as e:
                self._error = self._error or e

    def _cancel(self, error: BaseException) -> None:
        self._error = self._error or error

    def _kept_shard(self, shard: ShardInput) -> ShardEntry | None:
        """The shard as an earlier run wrote it from the same files."""
        name = self._name(shard)
        try:
            path = self._target(index_name(name))
            found = self.target.status(path)
            if found is None or found.is_folder:
                return None
            index = ShardIndex(read_whole(self.target, path), self.target.display_path(path))
        except PaiError:
            return None  # it is written again
        stored = self.target.status(self._target(name))
        input_hash = self._input_hash(shard, self._identity(shard))
        is_same = index.header.get("input") == input_hash and stored is not None
        if not is_same or stored is None or stored.size != index.shard_bytes:
            return None
        with self._lock:
            self.kept_shards += 1
        self._advance(len(shard.files), sum(file_stat[0] for _, file_stat in shard.files))
        return ShardEntry(name, len(shard.files), stored.size)

    def _write_shard(self, shard: ShardInput) -> ShardEntry:
        name, identity = self._name(shard), self._identity(shard)
        self._remove_outdated()
        with self._writing(name) as upload:
            writer = writer_class(self.options.format)(
                upload.write, compression=self.options.compression, identity=identity
            )
            self._write_records(writer, shard)
        header = {
            "format": self.options.format,
            "compression": self.options.compression,
            "shardBytes": writer.offset,
            "input": self._input_hash(shard, identity),
        }
        self._write_small(index_name(name), writer.index.encode(header))
        return ShardEntry(name, len(shard.files), writer.offset)

    def _write_records(self, writer: ShardWriter, shard: ShardInput) -> None:
        writer.begin()
        contents = read_files(self.source, self.source_path, shard.files)
        files = size = 0
        for (_, file_stat), key, content in zip(shard.files, shard.keys, contents, strict=True):
            if isinstance(content, tuple):
                writer.add(key, file_stat[0], content)
                size += file_stat[0]
            else:
                writer.add(key, file_stat[0], self._counted(content))
            files += 1
            if size >= _PROGRESS_BYTES or files == _PROGRESS_FILES:
                self._advance(files, size)
                files = size = 0
        self._advance(files, size)
        writer.end()

    def _counted(self, content: Content) -> Content:
        """The content of a large file, whose pieces count for the progress."""
        for chunk in content:
            self._advance(0, len(chunk))
            yield chunk

    def _advance(self, files: int, size: int) -> None:
        if self._error is not None:
            raise self._error
        with self._lock:
            self.progress.files += files
            self.progress.bytes += size

    def _identity(self, shard: ShardInput) -> bytes:
        """Depends on what is packed, not on when it was written."""
        parts = [f"{self.options.format} {self.options.compression}\n".encode()]
        parts += [
            b"%d %d " % (len(key), file_stat[0]) + key
            for (_, file_stat), key in zip(shard.files, shard.keys, strict=True)
        ]
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    def _input_hash(self, shard: ShardInput, identity: bytes) -> str:
        """Depends on the files' paths and times, too."""
        parts = [identity]
        parts += [
            b"%d " % file_stat[1] + path.encode("utf-8", "surrogateescape") + b"\0"
            for path, file_stat in shard.files
        ]
        return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()

    # -- target ----------------------------------------------------------------------------------

    def _name(self, shard: ShardInput) -> str:
        return shard_name(shard.number, self.options.format)

    def _target(self, name: str) -> str:
        return f"{self.target_path.rstrip('/')}/{name}"

    def _prepare_target(self) -> None:
        shown = self.target.display_path(self.target_path)
        existing = self.target.status(self.target_path)
        if existing is None:
            self.target.make_folder(self.target_path)
            return
        if not existing.is_folder:
            raise UsageError(f"{shown} is a file; a pack is a folder.")
        for entry in self.target.list_folder(self.target_path):
            if not is_pack_file(entry.name) and not entry.name.endswith(PARTIAL_SUFFIXES):
                raise UsageError(
                    f"{shown} has other files, such as {entry.name}: it is not a pack.",
                    hint="Give a new folder as the target.",
                )
            if entry.name in WHOLE_PACK_FILES:
                self._outdated.append(entry.name)

    def _remove_outdated(self) -> None:
        """With them, a mixture of old and new shards would look complete after an interruption."""
        with self._lock:
            problems = self.target.delete_all(self.target_path, self._outdated)
            if problems:
                raise problems[0][1]
            self._outdated = []

    @contextmanager
    def _writing(self, name: str) -> Iterator[BufferedUpload]:
        """A file of the pack being written; it appears when all of it was written without an error."""
        upload = BufferedUpload(self.target, self._target(name))
        try:
            yield upload
            upload.finish()
        except BaseException:
            upload.abandon()
            raise

    def _write_small(self, name: str, content: bytes) -> None:
        with self._writing(name) as upload:
            upload.write(content)

    def _write_har_indexes(self, manifest: Manifest) -> None:
        from openpaisdk.data.formats.har import HarFile, HarIndexBuilder

        builder = HarIndexBuilder()
        for shard in manifest.shards:
            path = self._target(index_name(shard.name))
            index = ShardIndex(read_whole(self.target, path), self.target.display_path(path))
            for key, offset, length in zip(index.keys(), index.offsets, index.lengths, strict=True):
                builder.add(HarFile(key.decode("utf-8", "surrogateescape"), shard.name, offset, length))
        with self._writing(HAR_INDEX) as upload:
            master = builder.write(upload.write)
        self._write_small(HAR_MASTER_INDEX, master)

    def _remove_old_shards(self, manifest: Manifest) -> None:
        """Remove shards that an earlier run left and the manifest does not name."""
        names = {shard.name for shard in manifest.shards}
        wanted = names | {index_name(name) for name in names} | {MANIFEST}
        if manifest.format == "har":
            wanted |= {HAR_INDEX, HAR_MASTER_INDEX}
        listed = self.target.list_folder(self.target_path)
        old = [entry.name for entry in listed if is_pack_file(entry.name) and entry.name not in wanted]
        if old:
            self.target.delete_all(self.target_path, old)


def _sample(path: str) -> str:
    """What WebDataset takes for the name of a sample: the path without all extensions."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    return f"{folder}/{stem}" if stem else ""


def _with_hint(error: BaseException) -> BaseException:
    if isinstance(error, ConnectionFailed | Unavailable):
        return type(error)(error.message, hint=RESUME_HINT)
    if isinstance(error, PaiError) and error.code == STORAGE_FULL:
        return PaiError(
            error.message, code=error.code, status=error.status, hint=f"Free some space. {RESUME_HINT}"
        )
    return error
