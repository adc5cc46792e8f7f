"""The engine: carries out a plan. Many files at a time, large ones in parts, small ones packed.

What fails for one file does not stop the others; what would fail for all (no room, no way) stops everything.
Nothing is left torn: a target is the old file or the new one, and what was begun can be continued.
"""

from __future__ import annotations

import threading

from openpaisdk.errors import ConnectionFailed, PaiError, Unauthorized, Unavailable
from openpaisdk.fileio import pack_format
from openpaisdk.fileio.hashing import ALGORITHMS, of_bytes, preferred
from openpaisdk.fileio.syscall_lock import SyscallLock
from openpaisdk.storage.backends.base import CHANGED, FULL, PART_BYTES, changed, damaged, refused
from openpaisdk.storage.backends.descriptor_io import copy_hashed
from openpaisdk.storage.transfer.plan import TransferPlan, counted, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from openpaisdk.storage.backends.base import Backend, Range, SourceFile, TargetFile
    from openpaisdk.storage.file_info import FileStat

    Item = tuple[str, FileStat]
    Unit = Callable[[], None]


class TransferProgress:
    """How far we are; whoever draws it looks from outside."""

    def __init__(self, files: int = 0, size: int = 0):
        self.files_in_all = files
        self.bytes_in_all = size
        self.files = 0
        self.bytes = 0


class Failure:
    __slots__ = ("error", "path")

    def __init__(self, path: str, error: PaiError):
        self.path = path
        self.error = error


class TransferExecutor:
    def __init__(self, plan: TransferPlan, source: Backend, target: Backend):
        self.plan = plan
        self.source = source
        self.target = target
        self.workers = min(source.workers, target.workers)
        self.progress = TransferProgress(plan.new.count, plan.new.size)
        self.failures: list[Failure] = []
        self.stopped: BaseException | None = None
        self._lock = threading.Lock()
        self._open: list[_LargeFile] = []
        self._turns = SyscallLock()

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> None:
        """Do all of it. ``watch`` is called now and then, from this thread."""
        units = _WorkQueue(self._units())
        # One small file is moved here and now; a large one has parts for all.
        count = 1 if self.plan.new.count <= 1 and self.plan.new.size <= PART_BYTES else self.workers
        threads = [
            threading.Thread(target=self._work, args=(units,), daemon=True, name=f"transfer-{i}")
            for i in range(count)
        ]
        if count == 1 and watch is None:
            self._work(units)
        else:
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    while thread.is_alive():
                        thread.join(0.1)
                        if watch is not None:
                            watch(self.progress)
            except BaseException as e:
                self.stopped = self.stopped or e
                raise
        for large in self._open:
            large.close()
        if self.stopped is not None:
            raise self._explained(self.stopped)
        if self.failures:
            raise self._summed_up()

    # -- what there is to do -------------------------------------------------------------------

    def _units(self) -> Iterator[Unit]:
        """Pieces of work, in an order in which they can be done; asked for by one worker at a time."""
        packing = (self.source.supports_packs or self.source.is_local) and (
            self.target.supports_packs or self.target.is_local
        )
        packing = packing and (self.source.supports_packs or self.target.supports_packs)
        # A pack makes the folders of its files, and new ones with less work. The first is made at once, with
        # the target: it is to be seen that something comes there.
        now = 1 if self.target.supports_packs else len(self.plan.folders)
        if self.plan.folders:
            yield lambda: self._make_folders(self.plan.folders[:now])
        batch: list[Item] = []
        size = 0
        for item in self.plan.new:
            path, facts = item
            if facts[0] > pack_format.SMALL:
                yield from self._parts(path, facts)
            elif not packing:
                yield lambda path=path, facts=facts: self._single(path, facts)  # type: ignore[misc]
            else:
                batch.append(item)
                size += facts[0]
                if size >= pack_format.PACK or len(batch) >= pack_format.COUNT:
                    yield lambda batch=batch: self._pack(batch)  # type: ignore[misc]
                    batch, size = [], 0
        if batch:
            yield lambda batch=batch: self._pack(batch)  # type: ignore[misc]
        if len(self.plan.folders) > now:
            yield lambda: self._make_folders(self.plan.folders[now:])

    def _parts(self, path: str, facts: FileStat) -> Iterator[Unit]:
        try:
            large = _LargeFile(self, path, facts)
        except PaiError as e:
            self._fail(path, e)
            return
        with self._lock:
            self._open.append(large)
        ranges = large.ranges
        if large.incoming.in_order or not ranges:
            yield lambda: large.move(ranges)
            return
        for each in ranges:
            yield lambda each=each: large.move([each])  # type: ignore[misc]

    # -- doing it ------------------------------------------------------------------------------

    def _work(self, units: _WorkQueue) -> None:
        while self.stopped is None:
            try:
                unit = units.take()
                if unit is None:
                    return
                unit()
            except BaseException as e:
                self.stopped = self.stopped or e

    def _make_folders(self, folders: list[str]) -> None:
        if self.target.supports_packs:
            for start in range(0, len(folders), pack_format.COUNT):
                some = folders[start : start + pack_format.COUNT]
                made = [
                    pack_format.head(pack_format.PackRecord(pack_format.FOLDER, name, b"", mode=0o755))
                    for name in some
                ]
                self._report(
                    self.target.send_pack(self.plan.target, b"".join([*made, pack_format.end(len(some))]))
                )
            return
        for folder in folders:
            try:
                self.target.make_folder(self._there(folder))
            except PaiError as e:
                self._fail(folder, e)

    def _pack(self, batch: list[Item]) -> None:
        if self.source.supports_packs:
            pack = self._fetched(batch)
        else:
            with self._turns.held():
                pack = self._packed(batch)
        if self.target.supports_packs:
            self._report(self.target.send_pack(self.plan.target, pack))
        else:
            self._unpack(pack, dict(batch))
        self._done(len(batch), sum(facts[0] for _, facts in batch))

    def _packed(self, batch: list[Item]) -> bytes:
        """Files of this machine, read and packed. One that changes meanwhile is left out and said so."""
        algorithm = preferred()
        place = ALGORITHMS.index(algorithm)
        out: list[bytes] = []
        count = 0
        for path, facts in batch:
            try:
                content, mtime_ns, mode = self.source.read_small(self._here(path), facts)
            except PaiError as e:
                self._fail(path, e)
                continue
            out.append(
                pack_format.head(
                    pack_format.PackRecord(
                        pack_format.FILE,
                        path,
                        content,
                        mode=mode,
                        mtime_ns=mtime_ns,
                        digest=of_bytes(content, algorithm),
                        algorithm=place,
                    )
                )
            )
            out.append(content)
            count += 1
        out.append(pack_format.end(count))
        return b"".join(out)

    def _fetched(self, batch: list[Item]) -> bytes:
        return self.source.fetch_pack(self.plan.source, [path for path, _ in batch])

    def _unpack(self, pack: bytes, wanted: dict[str, FileStat]) -> None:
        for record in pack_format.read_pack(pack):
            if record.name not in wanted:
                continue  # nobody asked for it: a server does not choose where on this machine it writes
            if record.kind == pack_format.PROBLEM:
                said = bytes(record.content).decode("utf-8", "replace")
                self._fail(record.name, PaiError(said or "The cluster could not read it."))
                continue
            if of_bytes(record.content, ALGORITHMS[record.algorithm]) != record.digest:
                raise ConnectionFailed(f"{record.name} was damaged on its way.")
            try:
                self.target.write_small(
                    self._there(record.name), record.content, record.mtime_ns, record.mode
                )
            except PaiError as e:
                self._fail(record.name, e)

    def _single(self, path: str, facts: FileStat) -> None:
        try:
            large = _LargeFile(self, path, facts)
            large.move(large.ranges)
        except PaiError as e:
            self._fail(path, e)

    # -- words ---------------------------------------------------------------------------------

    def _here(self, path: str) -> str:
        return f"{self.plan.source.rstrip('/')}/{path}" if path else self.plan.source

    def _there(self, path: str) -> str:
        return f"{self.plan.target.rstrip('/')}/{path}" if path else self.plan.target

    def _done(self, files: int, size: int) -> None:
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
        if error.code == FULL or isinstance(error, (ConnectionFailed, Unauthorized)):
            raise error
        with self._lock:
            self.failures.append(Failure(path, error))

    def _explained(self, error: BaseException) -> BaseException:
        if not isinstance(error, PaiError):
            return error
        if error.code == FULL:
            return PaiError(
                f"{error.message} {self.progress.files} of {counted(self.progress.files_in_all)} arrived; "
                f"the largest of all are {self.plan.largest()}.",
                code=FULL,
                status=507,
                hint="Make room and run the same command again: it continues where it was.",
            )
        if isinstance(error, (ConnectionFailed, Unavailable)):
            return type(error)(
                f"{error.message} {self.progress.files} of {counted(self.progress.files_in_all)} arrived.",
                hint="Run the same command again: it continues where it was.",
            )
        return error

    def _summed_up(self) -> PaiError:
        first = self.failures[0]
        if len(self.failures) == 1:
            error = first.error
            return type(error)(error.message, code=error.code, status=error.status, hint=error.hint)
        failed = {failure.path for failure in self.failures}
        folders = len(failed.intersection(self.plan.folders))
        files = len(failed) - folders
        said = f"{files} of {counted(self.progress.files_in_all)}"
        if folders:
            said += f" and {counted(folders, 'folder')}"
        hint = "Run the same command again for those that did not arrive."
        if all(failure.error.code == CHANGED for failure in self.failures):
            hint = "Copy these again when nobody writes to them."
        if files < self.progress.files_in_all:
            hint = f"The others arrived. {hint}"
        return PaiError(
            f"{said} could not be copied: "
            f"{named([failure.path for failure in self.failures])}. The first: {first.error.message}",
            hint=hint,
        )


class _WorkQueue:
    """Work for several threads, out of one generator."""

    def __init__(self, units: Iterator[Unit]):
        self._units = units
        self._lock = threading.Lock()

    def take(self) -> Unit | None:
        with self._lock:
            return next(self._units, None)


class _LargeFile:
    """One file that travels alone: its parts are moved by whoever is free, the last one puts it in place."""

    def __init__(self, engine: TransferExecutor, path: str, facts: FileStat):
        self.engine = engine
        self.path = path
        self.outgoing: SourceFile = engine.source.open(engine._here(path), facts)
        try:
            outgoing = self.outgoing
            now = (outgoing.size, outgoing.mtime_ns, outgoing.mode)
            self.incoming: TargetFile = engine.target.create(engine._there(path), now, outgoing.key)
        except BaseException:
            self.outgoing.close()
            raise
        try:
            self.ranges = self.incoming.missing(outgoing.longest_parts)
        except BaseException:
            self.close()
            raise
        from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison

        self._comparison = ChecksumComparison(outgoing, self.incoming)
        self._left = max(1, len(self.ranges))
        self._moving = 0
        self._error: PaiError | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._counts: dict[int, int] = {}
        engine._done(0, outgoing.size - sum(length for _, length in self.ranges))

    def move(self, ranges: list[Range]) -> None:
        """Move some of its parts. Only whoever is the last to be at it ends it, well or not."""
        with self._lock:
            if self._error is not None:
                return
            self._moving += 1
        error: PaiError | None = None
        try:
            for offset, length in ranges:
                self._move(offset, length)
        except PaiError as e:
            error = e
        except BaseException:
            with self._lock:
                self._moving -= 1
            raise
        with self._lock:
            self._moving -= 1
            self._left -= max(1, len(ranges))
            self._error = self._error or error
            is_last = not self._moving and (self._left == 0 or self._error is not None)
        if is_last:
            self._end()

    def _end(self) -> None:
        try:
            if self._error is None:
                try:
                    self.outgoing.check()
                    self._compare()
                    self.incoming.finish(self.outgoing.size)
                except PaiError as e:
                    self._error = e
            if self._error is not None and self._error.code == CHANGED:
                self.incoming.abandon()
        finally:
            self.close()
            self.engine._forget(self)
        if self._error is not None:
            self.engine._fail(self.path, self._error)
        else:
            self.engine._done(1, 0)

    def _compare(self) -> None:
        """Where parts are not proven one by one, an HDFS may know what the whole contains."""
        shown = self.engine.target.shown(self.engine._there(self.path))
        try:
            same = self._comparison.is_same(self.outgoing.size)
        except OSError as e:
            raise refused(shown, e) from None
        if same is False:
            self.incoming.abandon()
            raise damaged(shown)

    def _move(self, offset: int, length: int) -> None:
        source, target = self.outgoing.fileno(), self.incoming.fileno()
        if min(source, target) >= 0 and length:
            self._copy(source, target, offset, length)
            self.engine._done(0, length)
            return
        self.incoming.put(offset, length, lambda: self._counted(offset, length), self.outgoing)
        self._comparison.arrived(offset)

    def _counted(self, offset: int, length: int) -> Iterator[bytes | memoryview]:
        # A part that has to be sent again counts from its beginning.
        self.engine._done(0, -self._counts.pop(offset, 0))
        self._counts[offset] = 0
        for chunk in self._comparison.seen(offset, self.outgoing.chunks(offset, length)):
            yield chunk
            self._counts[offset] += len(chunk)
            self.engine._done(0, len(chunk))

    def _copy(self, source: int, target: int, offset: int, length: int) -> None:
        """From file to file on this machine."""
        try:
            done, digest = copy_hashed(source, target, offset, length, self.incoming.algorithm, self._writing)
            if done < length:
                raise changed(self.engine.source.shown(self.engine._here(self.path)), "became shorter")
            self.incoming.mark(offset, length, digest)
        except OSError as e:
            raise refused(self.engine.target.shown(self.engine._there(self.path)), e) from None

    def close(self) -> None:
        self.outgoing.close()
        self.incoming.close()
