"""Copying as ``cp -r`` means it, and synchronising: from two places to a plan, from a plan to the deed."""

from __future__ import annotations

import os

from openpaisdk.errors import ConnectionFailed, PaiError, UsageError
from openpaisdk.storage.backends.base import CHANGED, PART_BYTES, no_such, parts
from openpaisdk.storage.file_info import DirectoryListing, holds, is_same
from openpaisdk.storage.location import LOCAL, Location
from openpaisdk.storage.transfer.copy_markers import CopyMarker
from openpaisdk.storage.transfer.executor import TransferExecutor, TransferProgress
from openpaisdk.storage.transfer.plan import TransferPlan, compare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.file_info import FileInfo

    class Stream(Protocol):
        def fileno(self) -> int: ...

        def read(self, size: int, /) -> bytes | None: ...


class CopyOperation:
    """One source on its way to one target: planned at once, carried out by ``run``."""

    def __init__(
        self,
        opener: StorageOpener,
        source: Location,
        target: Location,
        *,
        synchronising: bool = False,
        deleting: bool = False,
        ignoring: bool | None = None,
        everything: bool = False,
        several: bool = False,
    ):
        """``ignoring`` heeds ignore files: by default for folders that leave this machine."""
        self.source, here = opener.open(source)
        self.target, there = opener.open(target)
        self._check_name(there)
        found = self.source.status(here)
        if found is None:
            raise no_such(source.text)
        if self.source.is_special(here):
            raise _special(source, f"pai copy - TARGET < {source.text} takes what comes out of it.")
        means_folder = source.means_contents or (source.kind == LOCAL and source.is_folder)
        if means_folder and not found.is_folder:
            raise UsageError(f"{source.text} is a file, and a slash at the end says it is a folder.")
        if synchronising and not found.is_folder:
            raise UsageError(f"{source.text} is a file; pai sync is for folders.", hint="Use pai copy.")
        self.is_folder = found.is_folder
        self.synchronising = synchronising
        self._mark = CopyMarker(self.source, here, self.target, there)
        begun = found.is_folder and not synchronising and self._mark.is_there()
        asked = there
        name = "" if source.means_contents else os.path.basename(here.rstrip("/"))
        there, self.continues = _target_path(
            self.target, there, target, name, found, synchronising, several, begun
        )
        if self.target.is_special(there):
            raise _special(target, f"pai copy SOURCE - > {target.text} writes to it.")
        if not found.is_folder:
            there = self.target.resolve(there)
        elif there != asked and self.target.is_link(there):
            # A link that was named is meant; one that is found where things go may lead anywhere.
            raise UsageError(
                f"{self.target.shown(there)} is a link, and a folder would have to take its place.",
                hint="Remove it first, or name it as the target of pai sync to write to where it leads.",
            )
        self._becomes = found.is_folder and not synchronising and there == asked
        self._refuse_loops(here, there, source, target, deleting)
        self.plan = TransferPlan(here, there)
        heeding = (
            ignoring if ignoring is not None else source.kind == LOCAL and self.target is not self.source
        )
        self._compare(found, heeding, deleting, everything)

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> TransferProgress:
        """Carry it out; what only the target had goes last, when everything else has arrived."""
        self.plan.check(self.target)
        if self._becomes:
            self._mark.begin()
        removed = self._remove_clashes()
        engine = TransferExecutor(self.plan, self.source, self.target)
        if self.plan.new.count or self.plan.folders:
            engine.run(watch)
        elif self.is_folder and self.target.status(self.plan.target) is None:
            self.target.make_folder(self.plan.target)
        self._remove([path for path in self.plan.extra if path not in removed])
        if self._becomes or self.synchronising:
            self._mark.end()
        return engine.progress

    def _remove_clashes(self) -> set[str]:
        """A folder in the way of a file, which goes anyway, has to go first."""
        extra = set(self.plan.extra)
        if not extra:
            return extra
        going = extra.intersection(self.plan.folders)
        going.update(path for path, _ in self.plan.new if path in extra)
        self._remove(list(going))
        return going

    def _remove(self, paths: list[str]) -> None:
        problems = self.target.delete_all(self.plan.target, paths) if paths else []
        if len(problems) == 1:
            raise problems[0][1]
        if problems:
            first = problems[0][1]
            raise PaiError(
                f"{len(problems)} of {len(paths)} could not be deleted. The first of them: {first.message}",
                code=first.code,
                hint=first.hint,
            )

    def _compare(self, found: FileInfo, heeding: bool, deleting: bool, everything: bool) -> None:
        plan = self.plan
        if not found.is_folder:
            self._check_name(plan.target)
            plan.count, plan.size = 1, found.size
            facts = (found.size, found.mtime_ns, found.mode)
            there = self.target.status(plan.target)
            if there is not None and there.is_folder:
                raise UsageError(f"{self.target.shown(plan.target)} is a folder.")
            if everything or there is None or not is_same(facts, (there.size, there.mtime_ns, there.mode)):
                plan.new.add("", facts)
            return
        theirs = _walk_if_there(self.target, plan.target)
        if self.source.is_local:
            from openpaisdk.storage.backends.local import LocalBackend
            from openpaisdk.storage.local_walk import walk

            full = self.source.full(plan.source) if isinstance(self.source, LocalBackend) else plan.source
            ours: Iterator[DirectoryListing] = walk(full, ignoring=heeding, skipped=plan.skipped)
        else:
            ours = self.source.walk(plan.source)
        compare(
            plan,
            ours,
            theirs,
            hdfs_names=self.target.names_are_hdfs,
            deleting=deleting,
            everything=everything,
            trusted=self.source.is_local,
        )

    def _check_name(self, path: str) -> None:
        from openpaisdk.storage.location import problem_of_name

        if self.target.names_are_hdfs and (why := problem_of_name(path)):
            raise UsageError(f"{path!r} cannot be a name on {self.target.where}: {why}.")

    def _refuse_loops(
        self, here: str, there: str, source: Location, target: Location, deleting: bool
    ) -> None:
        a, b = self.source.canonical(here).rstrip("/"), self.target.canonical(there).rstrip("/")
        if a == b:
            raise UsageError(f"{source.text} and {target.text} are the same.")
        if self.is_folder and b.startswith(a + "/"):
            raise UsageError(
                f"{target.text} lies inside {source.text}: it would be copied into itself, for ever."
            )
        if deleting and self.target.is_local and holds(self.target.canonical(there), os.path.expanduser("~")):
            raise UsageError(
                f"{target.text} is your home folder or holds it: --delete would remove all else there."
            )
        if deleting and a.startswith(b + "/"):
            raise UsageError(
                f"{source.text} lies inside {target.text}: --delete would remove what is to be copied."
            )


def _target_path(
    backend: Backend,
    path: str,
    target: Location,
    name: str,
    found: FileInfo,
    synchronising: bool,
    several: bool,
    begun: bool,
) -> tuple[str, bool]:
    """Where a copy ends up, and whether it was ``begun`` there: then an existing folder does not receive it.

    Any other existing folder does, and so does a target that ends in a slash. What has no ``name`` of its
    own, as the root of a storage, is put together with what is there.
    """
    there = backend.status(path)
    if synchronising:
        if there is not None and not there.is_folder:
            raise UsageError(f"{target.text} is a file; pai sync needs a folder.")
        return path, False
    into = target.is_folder or several
    continues = False
    if there is not None and there.is_folder:
        continues = begun and not into
        into = not continues
    elif there is not None and (into or found.is_folder):
        raise UsageError(f"{target.text} is a file, and a folder is needed there.")
    return (f"{path.rstrip('/')}/{name}" if into and name else path), continues


def _special(place: Location, hint: str) -> UsageError:
    return UsageError(f"{place.text} is neither a file nor a folder.", hint=hint)


def _walk_if_there(backend: Backend, path: str) -> Iterator[DirectoryListing]:
    """The other tree; nothing when there is none yet."""
    if backend.is_local and backend.status(path) is None:
        return
    folders = backend.walk(path)
    try:
        first = next(folders, None)
    except PaiError as e:
        if e.status == 404 or isinstance(e, UsageError):
            return
        raise
    if first is not None:
        yield first
        yield from folders


def from_stream(opener: StorageOpener, stream: Stream, target: Location, name: str = "") -> int:
    """What comes from a stream becomes a file; how many bytes that was."""
    backend, path = opener.open(target)
    there = backend.status(path)
    if backend.is_special(path):
        raise _special(target, f"Let the shell write to it: > {target.text}")
    if (there is not None and there.is_folder) or target.is_folder:
        raise UsageError(f"{target.text} is a folder: say what the file from standard input is to be called.")
    from openpaisdk.storage.transfer.stream_upload import StreamUpload

    growing = StreamUpload(backend, backend.resolve(path))
    try:
        while data := _filled(stream):
            growing.add(data)
        growing.finish()
    except BaseException:
        growing.abandon()
        raise
    return growing.size


def _filled(stream: Stream) -> bytes:
    """A whole part, unless the stream ends."""
    parts = []
    left = PART_BYTES
    while left:
        data = stream.read(min(left, 1 << 20))
        if data is None:  # not the end: whoever shares the pipe made it non-blocking, and it is empty
            import select

            select.select([stream], [], [])
            continue
        if not data:
            break
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def to_stream(opener: StorageOpener, source: Location, write: Callable[[bytes | memoryview], object]) -> int:
    """A file's bytes, verified, to wherever they are wanted."""
    from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison

    backend, path = opener.open(source)
    found = backend.status(path)
    if found is None:
        raise no_such(source.text)
    if found.is_folder:
        raise UsageError(f"{source.text} is a folder: only a file goes to standard output.")
    outgoing = backend.open(path)
    try:
        comparison = ChecksumComparison(outgoing, None)
        # Each range costs a request, and what is known of it memory.
        for at, length in parts(outgoing.size, 4 * PART_BYTES if outgoing.sums else outgoing.size):
            for chunk in comparison.seen(at, outgoing.chunks(at, length)):
                write(chunk)
            comparison.arrived(at)
        outgoing.check()
        if comparison.is_same(outgoing.size) is False:
            raise ConnectionFailed(f"{source.text} was damaged on its way: do not use what came of it.")
    except PaiError as e:
        if e.code != CHANGED:
            raise
        # What went to a stream does not come back: here no target "is as it was".
        said = f"{source.text} changed while it was copied: do not use what came of it."
        raise PaiError(said, code=e.code, hint=e.hint) from None
    finally:
        outgoing.close()
    return outgoing.size
