"""Packs the files of a folder into shards: ``pai pack``.

The same files give the same bytes. A shard is complete when its index exists; the index has a hash of the
shard's input, so that a later run keeps what is already there. A pack is complete when its manifest exists:
it is removed before a shard is replaced.
"""

from __future__ import annotations

import threading

from openpaisdk.data.file_contents import read_whole
from openpaisdk.data.file_list import FileList
from openpaisdk.data.formats.registry import writer_class
from openpaisdk.data.manifest import (
    HAR_INDEX,
    HAR_MASTER_INDEX,
    MANIFEST,
    WHOLE_PACK_FILES,
    Manifest,
    index_name,
    is_pack_file,
)
from openpaisdk.data.shard_index import ShardIndex
from openpaisdk.data.shard_packer import ShardInput, ShardPacker
from openpaisdk.storage.backends.base import STORAGE_FULL, WriteAccess
from openpaisdk.storage.transfer.executor import TransferProgress
from openpaisdk.storage.transfer.plan import PARTIAL_SUFFIXES
from openpaisdk.storage.transfer.worker_threads import run_threads
from paiprotocol.errors import ConnectionFailed, PaiError, Unavailable, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.data.manifest import ShardEntry
    from openpaisdk.data.record_keys import KeyRule
    from openpaisdk.data.shard_process import ShardProcess
    from openpaisdk.storage.backends.base import Backend

DEFAULT_SHARD_BYTES = 256 << 20
MAX_RECORDS_PER_SHARD = 1 << 13
"""Each takes some 400 bytes while its shard is written, and several shards are written at a time.

A process begins with a shard when all its files are listed, and with long shards processors are idle at the
beginning and at the end.
"""
FIRST_FILES = MAX_RECORDS_PER_SHARD
"""Files that are listed before the first are packed, by processes; the others are listed meanwhile."""
EARLY_FILES = 2048
"""Files after which processes are started, if there are more: their start takes as long as to list these."""
RESUME_HINT = "Complete shards are kept: run the same command again to resume."


class PackOptions:
    """How files become records."""

    __slots__ = ("compression", "early_files", "first_files", "format", "jobs", "keys", "shard_bytes")

    def __init__(
        self,
        format_name: str,
        compression: str,
        keys: KeyRule,
        shard_bytes: int,
        jobs: int,
        *,
        first_files: int = FIRST_FILES,
        early_files: int = EARLY_FILES,
    ):
        writer = writer_class(format_name)
        if compression not in writer.compressions:
            known = ", ".join(writer.compressions)
            raise UsageError(f"The format {format_name} has no compression {compression!r}; it has: {known}.")
        self.format = format_name
        self.compression = compression
        self.keys = keys
        self.shard_bytes = shard_bytes
        self.jobs = jobs
        self.first_files = first_files
        self.early_files = early_files


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
        self.files = FileList(source, source_path)
        self.kept_shards = 0
        self.progress = TransferProgress()
        self._packer = ShardPacker(
            source, source_path, target, target_path, options.format, options.compression
        )
        self._processes: list[ShardProcess] = []
        self._lock = threading.Lock()
        self._shards_lock = threading.Lock()
        self._done: dict[int, ShardEntry] = {}
        self._error: BaseException | None = None
        self._outdated: list[str] = []
        """Files about the whole pack, of an earlier run; removed before the first shard is written."""

    def scan(self) -> None:
        """List the files to pack, or the first of very many; an error if there are none."""
        self.files.list_first(min(self.options.early_files, self.options.first_files))
        if self.files.is_complete and not self.files.count:
            raise UsageError(f"{self.source.display_path(self.source_path)} has no files to pack.")
        if not self.files.is_complete and self.options.jobs > 1:
            from openpaisdk.data.shard_process import start_processes

            self._processes = start_processes(self._packer, self.options.jobs)
        try:
            self.files.list_first(self.options.first_files)
        except BaseException:
            self._end_processes()
            raise
        if self.files.is_complete:
            self._end_processes()
        self.files.list_rest()

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> Manifest:
        """Write all shards, then the manifest. ``watch`` is called ten times a second from this thread."""
        with WriteAccess(self.target, self.target_path):
            try:
                self._prepare_target()
                shards = self._shards()
                run_threads(
                    lambda: self._work(shards),
                    len(self._processes) or self.options.jobs,
                    "pack",
                    watch=None if watch is None else lambda: watch(self._counted()),
                    cancel=self._cancel,
                    joins=True,
                )
            finally:
                self.files.close()
                self._end_processes()
            if self._error is not None:
                raise _with_hint(self._error)
            manifest = Manifest(
                self.options.format,
                self.options.compression,
                [self._done[number] for number in sorted(self._done)],
            )
            if self.options.format == "har":
                self._write_har_indexes(manifest)
            self._packer.write_small(MANIFEST, manifest.encode())
            self._remove_old_shards(manifest)
        return manifest

    def _end_processes(self) -> None:
        while self._processes:
            self._processes.pop().close()

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
        process = self._processes.pop() if self._processes else None
        write = self._packer.write if process is None else process.write
        try:
            while self._error is None:
                with self._shards_lock:
                    shard = next(shards, None)
                if shard is None or self._error is not None:
                    return
                kept = self._packer.find(shard)
                if kept is None:
                    self._begin_changes()
                else:
                    self._advance(len(shard.files), sum(file_stat[0] for _, file_stat in shard.files))
                entry = kept or write(shard, self._advance)
                with self._lock:
                    self._done[shard.number] = entry
                    self.kept_shards += kept is not None
        except BaseException as e:
            self._cancel(e)
        finally:
            if process is not None:
                process.close()

    def _cancel(self, error: BaseException) -> None:
        """Let all threads return soon, those that wait for the listing, too."""
        self._error = self._error or error
        self.files.close()

    def _advance(self, files: int, size: int) -> None:
        if self._error is not None:
            raise self._error
        with self._lock:
            self.progress.files += files
            self.progress.bytes += size

    def _counted(self) -> TransferProgress:
        """The progress, with the files that are listed by now."""
        self.progress.total_files, self.progress.total_bytes = self.files.count, self.files.size
        return self.progress

    # -- target ----------------------------------------------------------------------------------

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

    def _begin_changes(self) -> None:
        """Remove the files about the whole of an earlier pack, before the first of its shards is replaced.

        With them, a mixture of old and new shards would look complete after an interruption. A complete pack
        is changed when all files are listed: a folder that cannot be read leaves it as it is.
        """
        if not self._outdated:
            return
        self.files.wait_until_listed()
        if self._error is not None:
            raise self._error
        with self._lock:
            problems = self.target.delete_all(self.target_path, self._outdated)
            if problems:
                raise problems[0][1]
            self._outdated = []

    def _write_har_indexes(self, manifest: Manifest) -> None:
        from openpaisdk.data.formats.har import HarFile, HarIndexBuilder

        builder = HarIndexBuilder()
        for shard in manifest.shards:
            path = self._packer.path(index_name(shard.name))
            index = ShardIndex(read_whole(self.target, path), self.target.display_path(path))
            for key, offset, length in zip(index.keys(), index.offsets, index.lengths, strict=True):
                builder.add(HarFile(key.decode("utf-8", "surrogateescape"), shard.name, offset, length))
        with self._packer.writing(HAR_INDEX) as upload:
            master = builder.write(upload.write)
        self._packer.write_small(HAR_MASTER_INDEX, master)

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
