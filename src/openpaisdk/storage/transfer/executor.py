"""Transfer executor: runs a plan with several threads, large files in parts, small files in packs.

An error of one file does not stop the others; an error that concerns all (full disk, no connection) stops the
transfer. Targets are replaced atomically, and an interrupted transfer can be resumed.
"""

from __future__ import annotations

import threading

from openpaisdk.storage.backends.base import (
    FILE_CHANGED,
    PART_BYTES,
    STORAGE_FULL,
    changed_error,
    damaged_error,
    error_from_oserror,
    is_denied,
)
from openpaisdk.storage.backends.descriptor_io import copy_hashed
from openpaisdk.storage.transfer.plan import TransferPlan, count_of, list_names
from openpaisdk.storage.transfer.worker_threads import run_threads
from paiprotocol.errors import ConnectionFailed, PaiError, TooManyRequests, Unauthorized, Unavailable
from paiprotocol.transfer import pack_format
from paiprotocol.transfer.hashing import ALGORITHMS, hash_bytes, preferred_algorithm
from pairuntime.local_files.syscall_lock import SyscallLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.base import Backend, Range, SourceFile, TargetFile
    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]
    Unit = Callable[[], None]


class TransferProgress:
    """Progress of a transfer, read by the thread that displays it."""

    def __init__(self, files: int = 0, size: int = 0):
        self.total_files = files
        self.total_bytes = size
        self.files = 0
        self.bytes = 0


class TransferFailure:
    """A file that could not be transferred."""

    __slots__ = ("error", "path")

    def __init__(self, path: str, error: PaiError):
        self.path = path
        self.error = error


class TransferExecutor:
    """Executes one transfer plan."""

    def __init__(self, plan: TransferPlan, source: Backend, target: Backend):
        self.plan = plan
        self.source = source
        self.target = target
        self.workers = min(source.workers, target.workers)
        self.progress = TransferProgress(plan.new.count, plan.new.size)
        self.failures: list[TransferFailure] = []
        self.fatal_error: BaseException | None = None
        self._lock = threading.Lock()
        self._open: list[_LargeFile] = []
        self._syscall_lock = SyscallLock()

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> None:
        """Transfer everything. ``watch`` is called ten times a second, from this thread."""
        units = _WorkQueue(self._units())
        # A single small file needs no thread; a large one has parts for all threads.
        count = 1 if self.plan.new.count <= 1 and self.plan.new.size <= PART_BYTES else self.workers
        if count == 1 and watch is None:
            self._work(units)
        else:
            run_threads(
                lambda: self._work(units),
                count,
                "transfer",
                watch=None if watch is None else lambda: watch(self.progress),
                cancel=self._cancel,
            )
        for large in self._open:
            large.close()
        if self.fatal_error is not None:
            raise self._with_progress(self.fatal_error)
        if self.failures:
            raise self._summary_error()

    # -- work units ----------------------------------------------------------------------------

    def _units(self) -> Iterator[Unit]:
        """Units of work in a valid order; consumed by one thread at a time."""
        packing = (self.source.supports_packs or self.source.is_local) and (
            self.target.supports_packs or self.target.is_local
        )
        packing = packing and (self.source.supports_packs or self.target.supports_packs)
        # The server creates the folders of a pack's files itself, at less cost when they are new. Only the
        # first folder is created at once, with the target, so that the copy is visible there.
        now = 1 if self.target.supports_packs else len(self.plan.folders)
        folders_of_files: set[str] = set()
        if self.target.has_implicit_folders:
            now = 0
        if self.plan.folders and now:
            yield lambda: self._make_folders(self.plan.folders[:now])
        batch: list[Item] = []
        size = 0
        for item in self.plan.new:
            path, file_stat = item
            if self.target.has_implicit_folders:
                _add_ancestors(folders_of_files, path)
            if file_stat[0] > pack_format.MAX_PACKED_FILE_BYTES:
                yield from self._parts(path, file_stat)
            elif not packing:
                yield lambda path=path, file_stat=file_stat: self._transfer_file(path, file_stat)  # type: ignore[misc]
            else:
                batch.append(item)
                size += file_stat[0]
                if size >= pack_format.PACK_FULL_BYTES or len(batch) >= pack_format.MAX_PACK_FILES:
                    yield lambda batch=batch: self._transfer_pack(batch)  # type: ignore[misc]
                    batch, size = [], 0
        if batch:
            yield lambda batch=batch: self._transfer_pack(batch)  # type: ignore[misc]
        if later := [folder for folder in self.plan.folders[now:] if folder not in folders_of_files]:
            yield lambda: self._make_folders(later)

    def _parts(self, path: str, file_stat: FileStat) -> Iterator[Unit]:
        try:
            large = _LargeFile(self, path, file_stat)
        except PaiError as e:
            self._fail(path, e)
            return
        with self._lock:
            self._open.append(large)
        ranges = large.ranges
        if large.target.in_order or not ranges:
            yield lambda: large.move(ranges)
            return
        for each in ranges:
            yield lambda each=each: large.move([each])  # type: ignore[misc]

    # -- execution -----------------------------------------------------------------------------

    def _work(self, units: _WorkQueue) -> None:
        while self.fatal_error is None:
            try:
                unit = units.next()
                if unit is None:
                    return
                unit()
            except BaseException as e:
                self.fatal_error = self.fatal_error or e

    def _cancel(self, error: BaseException) -> None:
        self.fatal_error = self.fatal_error or error

    def _make_folders(self, folders: list[str]) -> None:
        if self.target.supports_packs:
            for start in range(0, len(folders), pack_format.MAX_PACK_FILES):
                some = folders[start : start + pack_format.MAX_PACK_FILES]
                made = [
                    pack_format.record_header(
                        pack_format.PackRecord(pack_format.FOLDER, name, b"", mode=0o755)
                    )
                    for name in some
                ]
                self._report(
                    self.target.send_pack(
                        self.plan.target, b"".join([*made, pack_format.end_record(len(some))])
                    )
                )
            return
        for folder in folders:
            try:
                self.target.make_folder(self._target_path(folder))
            except PaiError as e:
                self._fail(folder, e)

    def _transfer_pack(self, batch: list[Item]) -> None:
        if self.source.supports_packs:
            pack, packed = self._fetch_pack(batch)
        else:
            with self._syscall_lock.held():
                pack, packed = self._build_pack(batch)
        if self.target.supports_packs:
            problems = self.target.send_pack(self.plan.target, pack)
            self._report(problems)
            arrived = packed.difference(name for name, _ in problems)
        else:
            arrived = self._unpack(pack, packed)
        sizes = [file_stat[0] for path, file_stat in batch if path in arrived]
        self._add_progress(len(sizes), sum(sizes))

    def _build_pack(self, batch: list[Item]) -> tuple[bytes, set[str]]:
        """Pack of local files, and their paths. A file that changes meanwhile is left out and reported."""
        algorithm = preferred_algorithm()
        algorithm_index = ALGORITHMS.index(algorithm)
        out: list[bytes] = []
        packed: set[str] = set()
        for path, file_stat in batch:
            try:
                content, mtime_ns, mode = self.source.read_small(self._source_path(path), file_stat)
            except PaiError as e:
                self._fail(path, e)
                continue
            out.append(
                pack_format.record_header(
                    pack_format.PackRecord(
                        pack_format.FILE,
                        path,
                        content,
                        mode=mode,
                        mtime_ns=mtime_ns,
                        digest=hash_bytes(content, algorithm),
                        algorithm=algorithm_index,
                    )
                )
            )
            out.append(content)
            packed.add(path)
        out.append(pack_format.end_record(len(packed)))
        return b"".join(out), packed

    def _fetch_pack(self, batch: list[Item]) -> tuple[bytes, set[str]]:
        """Pack of the source, and the paths it has of the requested ones. Those it lacks are reported."""
        requested = [path for path, _ in batch]
        pack = self.source.fetch_pack(self.plan.source, requested)
        packed = {record.name for record in pack_format.read_pack(pack)}.intersection(requested)
        for path in requested:
            if path not in packed:
                what = self.source.display_path(self._source_path(path))
                self._fail(path, PaiError(f"The storage did not send {what}, which it lists."))
        return pack, packed

    def _unpack(self, pack: bytes, packed: set[str]) -> set[str]:
        """Write the files of a pack; returns the paths of those that arrived."""
        arrived: set[str] = set()
        for record in pack_format.read_pack(pack):
            if record.name not in packed:
                continue  # not requested: a server must not choose which local files are written
            if record.kind == pack_format.PROBLEM:
                message = bytes(record.content).decode("utf-8", "replace")
                self._fail(record.name, PaiError(message or "The cluster could not read it."))
                continue
            if hash_bytes(record.content, ALGORITHMS[record.algorithm]) != record.digest:
                raise ConnectionFailed(f"{record.name} was damaged during the transfer.")
            try:
                self.target.write_bytes(
                    self._target_path(record.name), record.content, record.mtime_ns, record.mode
                )
            except PaiError as e:
                self._fail(record.name, e)
            else:
                arrived.add(record.name)
        return arrived

    def _transfer_file(self, path: str, file_stat: FileStat) -> None:
        try:
            large = _LargeFile(self, path, file_stat)
            large.move(large.ranges)
        except PaiError as e:
            self._fail(path, e)

    # -- progress and errors -------------------------------------------------------------------

    def _source_path(self, path: str) -> str:
        return f"{self.plan.source.rstrip('/')}/{path}" if path else self.plan.source

    def _target_path(self, path: str) -> str:
        return f"{self.plan.target.rstrip('/')}/{path}" if path else self.plan.target

    def _add_progress(self, files: int, size: int) -> None:
        with self._lock:
            self.progress.files += files
            self.progress.bytes += size

    def _forget(self, large: _LargeFile) -> None:
        with self._lock:
            if large in self._open:
                self._open.remove(large)

    def _report(self, problems: list[tuple[str, PaiError]]) -> None:
        for name, error in problems:
            self._fail(name, error)

    def _fail(self, path: str, error: PaiError) -> None:
        if error.code == STORAGE_FULL or isinstance(error, (ConnectionFailed, TooManyRequests, Unauthorized)):
            raise error
        with self._lock:
            self.failures.append(TransferFailure(path, error))

    def _with_progress(self, error: BaseException) -> BaseException:
        if not isinstance(error, PaiError):
            return error
        if error.code == STORAGE_FULL:
            return PaiError(
                f"{error.message} {self.progress.files} of {count_of(self.progress.total_files)} arrived; "
                f"the largest files are {self.plan.largest()}.",
                code=STORAGE_FULL,
                status=507,
                hint="Free some space and run the same command again: it resumes the copy.",
            )
        if isinstance(error, (ConnectionFailed, TooManyRequests, Unavailable)):
            return type(error)(
                f"{error.message} {self.progress.files} of {count_of(self.progress.total_files)} arrived.",
                hint="Run the same command again: it resumes the copy.",
            )
        return error

    def _summary_error(self) -> PaiError:
        first = self.failures[0]
        are_denied = all(is_denied(failure.error) for failure in self.failures)
        if len(self.failures) == 1 or (are_denied and not self.progress.files):
            error = first.error
            return type(error)(error.message, code=error.code, status=error.status, hint=error.hint)
        failed = {failure.path for failure in self.failures}
        folders = len(failed.intersection(self.plan.folders))
        files = len(failed) - folders
        summary = f"{files} of {count_of(self.progress.total_files)}"
        if folders:
            summary += f" and {count_of(folders, 'folder')}"
        hint = "" if are_denied else "Run the same command again to copy the missing ones."
        if all(failure.error.code == FILE_CHANGED for failure in self.failures):
            hint = "Copy these again when no program writes to them."
        if files < self.progress.total_files:
            hint = f"All others arrived. {hint}".rstrip()
        return PaiError(
            f"{summary} could not be copied: "
            f"{list_names([failure.path for failure in self.failures])}. The first: {first.error.message}",
            hint=hint,
        )


def _add_ancestors(folders: set[str], path: str) -> None:
    """Add all folders that a file lies in."""
    while (path := path.rpartition("/")[0]) and path not in folders:
        folders.add(path)


class _WorkQueue:
    """Thread-safe queue over a generator of work units."""

    def __init__(self, units: Iterator[Unit]):
        self._units = units
        self._lock = threading.Lock()

    def next(self) -> Unit | None:
        with self._lock:
            return next(self._units, None)


class _LargeFile:
    """A file transferred in parts by any free thread; the last part to arrive finishes it."""

    def __init__(self, executor: TransferExecutor, path: str, file_stat: FileStat):
        self.executor = executor
        self.path = path
        self.source: SourceFile = executor.source.open(executor._source_path(path), file_stat)
        try:
            source = self.source
            now = (source.size, source.mtime_ns, source.mode)
            self.target: TargetFile = executor.target.create(executor._target_path(path), now, source.key)
        except BaseException:
            self.source.close()
            raise
        try:
            self.ranges = self.target.missing_ranges(source.max_part_bytes)
        except BaseException:
            self.close()
            raise
        from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison

        self._comparison = ChecksumComparison(source, self.target)
        self._left = max(1, len(self.ranges))
        self._active_moves = 0
        self._error: PaiError | None = None
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._counts: dict[int, int] = {}
        executor._add_progress(0, source.size - sum(length for _, length in self.ranges))

    def move(self, ranges: list[Range]) -> None:
        """Transfer some of its parts. The last thread at work on the file finishes it or reports its
        error."""
        with self._lock:
            if self._error is not None:
                return
            self._active_moves += 1
        error: PaiError | None = None
        try:
            for offset, length in ranges:
                self._move(offset, length)
        except PaiError as e:
            error = e
        except BaseException:
            with self._lock:
                self._active_moves -= 1
            raise
        with self._lock:
            self._active_moves -= 1
            self._left -= max(1, len(ranges))
            self._error = self._error or error
            is_last = not self._active_moves and (self._left == 0 or self._error is not None)
        if is_last:
            self._end()

    def _end(self) -> None:
        try:
            if self._error is None:
                try:
                    self.source.check()
                    self._compare()
                    self.target.finish(self.source.size)
                except PaiError as e:
                    self._error = e
            if self._error is not None and self._error.code == FILE_CHANGED:
                self.target.abandon()
        finally:
            self.close()
            self.executor._forget(self)
        if self._error is not None:
            self.executor._fail(self.path, self._error)
        else:
            self.executor._add_progress(1, 0)

    def _compare(self) -> None:
        """Where parts are not verified one by one, compare with the checksum of an HDFS."""
        shown = self.executor.target.display_path(self.executor._target_path(self.path))
        try:
            same = self._comparison.matches(self.source.size)
        except OSError as e:
            raise error_from_oserror(shown, e) from None
        if same is False:
            self.target.abandon()
            raise damaged_error(shown)

    def _move(self, offset: int, length: int) -> None:
        source, target = self.source.fileno(), self.target.fileno()
        if min(source, target) >= 0 and length:
            self._copy(source, target, offset, length)
            self.executor._add_progress(0, length)
            return
        self.target.put(offset, length, lambda: self._counted(offset, length), self.source)
        self._comparison.confirm(offset)

    def _counted(self, offset: int, length: int) -> Iterator[bytes | memoryview]:
        # A part that is sent again is counted from its beginning.
        self.executor._add_progress(0, -self._counts.pop(offset, 0))
        self._counts[offset] = 0
        for chunk in self._comparison.observe(offset, self.source.chunks(offset, length)):
            yield chunk
            self._counts[offset] += len(chunk)
            self.executor._add_progress(0, len(chunk))

    def _copy(self, source: int, target: int, offset: int, length: int) -> None:
        """Copy a range between two descriptors of this machine."""
        source_name = self.executor.source.display_path(self.executor._source_path(self.path))
        try:
            done, digest = copy_hashed(
                source, target, offset, length, self.target.algorithm, self._write_lock, source_name
            )
            if done < length:
                raise changed_error(source_name, "became shorter")
            self.target.mark_written(offset, length, digest)
        except OSError as e:
            raise error_from_oserror(
                self.executor.target.display_path(self.executor._target_path(self.path)), e
            ) from None

    def close(self) -> None:
        self.source.close()
        self.target.close()
