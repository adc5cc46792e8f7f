"""Copy (with the semantics of ``cp -r``) and sync between two locations, and copies from and to streams."""

from __future__ import annotations

import os

from openpaisdk.storage.backends.base import FILE_CHANGED, PART_BYTES, WriteAccess, split_ranges
from openpaisdk.storage.file_info import DirectoryListing, contains_path, is_unchanged
from openpaisdk.storage.location import LOCAL, Location
from openpaisdk.storage.transfer.copy_markers import CopyMarker
from openpaisdk.storage.transfer.executor import TransferExecutor, TransferProgress
from openpaisdk.storage.transfer.plan import TransferPlan, compare_trees
from paiprotocol.errors import ConnectionFailed, PaiError, UsageError

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
    """A copy from one source to one target: ``plan`` compares both sides, ``run`` transfers the
    difference."""

    def __init__(
        self,
        source: Backend,
        target: Backend,
        transfer_plan: TransferPlan,
        marker: CopyMarker,
        *,
        is_folder: bool,
        is_sync: bool = False,
        is_resumed: bool = False,
        creates_target: bool = False,
    ):
        """``creates_target``: the folder becomes the target itself; such a copy is marked until it is
        complete."""
        self.source = source
        self.target = target
        self.transfer_plan = transfer_plan
        self.is_folder = is_folder
        self.is_sync = is_sync
        self.is_resumed = is_resumed
        self._marker = marker
        self._creates_target = creates_target

    @classmethod
    def plan(
        cls,
        opener: StorageOpener,
        source: Location,
        target: Location,
        *,
        sync: bool = False,
        delete: bool = False,
        use_ignore_files: bool | None = None,
        force: bool = False,
        multiple_sources: bool = False,
    ) -> CopyOperation:
        """Open both storages and compare both trees; nothing is changed.

        ``use_ignore_files`` is by default true for folders that leave this machine.
        """
        source_backend, source_path = opener.open(source)
        target_backend, target_path = opener.open_for_writing(target)
        _check_name(target_backend, target_path)
        info = _source_info(opener, source_backend, source_path, source, sync)
        marker = CopyMarker(source_backend, source_path, target_backend, target_path)
        is_started = info.is_folder and not sync and marker.exists()
        typed_path = target_path
        name = "" if source.means_contents else os.path.basename(source_path.rstrip("/"))
        with WriteAccess(target_backend, typed_path):
            target_path, is_resumed = _target_path(
                target_backend, target_path, target, name, info, sync, multiple_sources, is_started
            )
        if target_backend.is_special(target_path):
            raise _special(target, f"pai copy SOURCE - > {target.text} writes to it.")
        if not info.is_folder:
            target_path = target_backend.resolve(target_path)
        elif target_path != typed_path and target_backend.is_link(target_path):
            # A link that the user named is followed; one found inside the target folder may lead anywhere.
            raise UsageError(
                f"{target_backend.display_path(target_path)} is a link; a folder would have to replace it.",
                hint="Remove it first, or name it as the target of pai sync to write to where it leads.",
            )
        transfer_plan = TransferPlan(source_path, target_path)
        operation = cls(
            source_backend,
            target_backend,
            transfer_plan,
            marker,
            is_folder=info.is_folder,
            is_sync=sync,
            is_resumed=is_resumed,
            creates_target=info.is_folder and not sync and target_path == typed_path,
        )
        operation._check_overlap(source, target, delete)
        if use_ignore_files is None:
            use_ignore_files = source.kind == LOCAL and target_backend is not source_backend
        operation._compare(info, use_ignore_files, delete, force)
        return operation

    def run(self, watch: Callable[[TransferProgress], None] | None = None) -> TransferProgress:
        """Transfer, then delete what only the target has: last, when everything else has arrived."""
        if not self.source.is_local:  # it may deny access, too
            return self._transfer(watch)
        with WriteAccess(self.target, self.transfer_plan.target):
            return self._transfer(watch)

    def _transfer(self, watch: Callable[[TransferProgress], None] | None) -> TransferProgress:
        plan = self.transfer_plan
        plan.check(self.target)
        if self._creates_target:
            self._marker.write()
        removed = self._remove_clashes()
        executor = TransferExecutor(plan, self.source, self.target)
        if plan.new.count or plan.folders:
            executor.run(watch)
        elif self.is_folder and self.target.status(plan.target) is None:
            self.target.make_folder(plan.target)
        self._remove([path for path in plan.extra if path not in removed])
        if self._creates_target or self.is_sync:
            self._marker.remove()
        return executor.progress

    def _remove_clashes(self) -> set[str]:
        """Remove first what is deleted anyway and blocks a path: a folder where a file goes, or the
        reverse."""
        extra = set(self.transfer_plan.extra)
        if not extra:
            return extra
        clashes = extra.intersection(self.transfer_plan.folders)
        clashes.update(path for path, _ in self.transfer_plan.new if path in extra)
        self._remove(list(clashes))
        return clashes

    def _remove(self, paths: list[str]) -> None:
        problems = self.target.delete_all(self.transfer_plan.target, paths) if paths else []
        if len(problems) == 1:
            raise problems[0][1]
        if problems:
            first = problems[0][1]
            raise PaiError(
                f"{len(problems)} of {len(paths)} could not be deleted. The first error: {first.message}",
                code=first.code,
                hint=first.hint,
            )

    def _compare(self, info: FileInfo, use_ignore_files: bool, delete: bool, force: bool) -> None:
        plan = self.transfer_plan
        if not info.is_folder:
            _check_name(self.target, plan.target)
            plan.count, plan.size = 1, info.size
            file_stat = (info.size, info.mtime_ns, info.mode)
            existing = self.target.status(plan.target)
            if existing is not None and existing.is_folder:
                raise UsageError(f"{self.target.display_path(plan.target)} is a folder.")
            if (
                force
                or existing is None
                or not is_unchanged(
                    file_stat,
                    (existing.size, existing.mtime_ns, existing.mode),
                    keeps_times=self.target.keeps_times,
                )
            ):
                plan.new.add("", file_stat)
            return
        target_folders = _walk_if_exists(self.target, plan.target)
        if self.source.is_local:
            from openpaisdk.storage.backends.local import LocalBackend
            from openpaisdk.storage.local_walk import walk

            full_path = plan.source
            if isinstance(self.source, LocalBackend):
                full_path = self.source.full_path(plan.source)
            source_folders: Iterator[DirectoryListing] = walk(
                full_path, use_ignore_files=use_ignore_files, skipped=plan.skipped
            )
        else:
            source_folders = self.source.walk(plan.source)
        compare_trees(
            plan,
            source_folders,
            target_folders,
            invalid_name_reason=self.target.invalid_name_reason,
            keeps_times=self.target.keeps_times,
            delete=delete,
            force=force,
            trusted=self.source.is_local,
        )

    def _check_overlap(self, source: Location, target: Location, delete: bool) -> None:
        target_name = self.target.canonical(self.transfer_plan.target)
        a = self.source.canonical(self.transfer_plan.source).rstrip("/")
        b = target_name.rstrip("/")
        if a == b:
            raise UsageError(f"{source.text} and {target.text} are the same.")
        if self.is_folder and b.startswith(a + "/"):
            raise UsageError(
                f"{target.text} lies inside {source.text}: it would be copied into itself without end."
            )
        if delete and self.target.is_local and contains_path(target_name, os.path.expanduser("~")):
            raise UsageError(
                f"{target.text} is your home folder or contains it: --delete would remove the rest of it."
            )
        if delete and a.startswith(b + "/"):
            raise UsageError(
                f"{source.text} lies inside {target.text}: --delete would remove the files to be copied."
            )


def _source_info(
    opener: StorageOpener, backend: Backend, path: str, source: Location, sync: bool
) -> FileInfo:
    """Status of the source; an error where it is missing or of the wrong kind."""
    info = backend.status(path)
    if info is None:
        raise opener.not_found(source)
    if backend.is_special(path):
        raise _special(source, f"pai copy - TARGET < {source.text} copies what it outputs.")
    means_folder = source.means_contents or (source.kind == LOCAL and source.is_folder)
    if means_folder and not info.is_folder:
        raise UsageError(f"{source.text} is a file, but a trailing slash means a folder.")
    if sync and not info.is_folder:
        raise UsageError(f"{source.text} is a file; pai sync is for folders.", hint="Use pai copy.")
    return info


def _check_name(backend: Backend, path: str) -> None:
    if reason := backend.invalid_name_reason(path):
        raise UsageError(f"{path!r} cannot be a name on {backend.url}: {reason}.")


def _target_path(
    backend: Backend,
    path: str,
    target: Location,
    name: str,
    info: FileInfo,
    sync: bool,
    multiple_sources: bool,
    is_started: bool,
) -> tuple[str, bool]:
    """The path a copy ends up at, and whether it resumes an interrupted copy (``is_started``) to that path.

    A resumed copy does not go into the existing folder; any other copy to an existing folder does, and so
    does one to a target that ends in a slash. A source without a ``name``, such as the root of a storage, is
    merged with the target folder.
    """
    existing = backend.status(path)
    if sync:
        if existing is not None and not existing.is_folder:
            raise UsageError(f"{target.text} is a file; pai sync needs a folder.")
        return path, False
    into = target.is_folder or multiple_sources
    is_resumed = False
    if existing is not None and existing.is_folder:
        is_resumed = is_started and not into
        into = not is_resumed
    elif existing is not None and (into or info.is_folder):
        raise UsageError(f"{target.text} is a file, and a folder is needed there.")
    return (f"{path.rstrip('/')}/{name}" if into and name else path), is_resumed


def _special(location: Location, hint: str) -> UsageError:
    return UsageError(f"{location.text} is neither a file nor a folder.", hint=hint)


def _walk_if_exists(backend: Backend, path: str) -> Iterator[DirectoryListing]:
    """Walk of the target tree; empty when it does not exist."""
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
    """Upload a stream to a file; the number of bytes."""
    backend, path = opener.open_for_writing(target)
    existing = backend.status(path)
    if backend.is_special(path):
        raise _special(target, f"Let the shell write to it: > {target.text}")
    if (existing is not None and existing.is_folder) or target.is_folder:
        raise UsageError(f"{target.text} is a folder: give a file name for standard input.")
    from openpaisdk.storage.transfer.stream_upload import StreamUpload

    with WriteAccess(backend, path):
        upload = StreamUpload(backend, backend.resolve(path))
        try:
            while data := _read_part(stream):
                upload.add(data)
            upload.finish()
        except BaseException:
            upload.abandon()
            raise
    return upload.size


def _read_part(stream: Stream) -> bytes:
    """One whole part, or less at the end of the stream."""
    pieces = []
    remaining = PART_BYTES
    while remaining:
        data = stream.read(min(remaining, 1 << 20))
        if data is None:  # not the end: a process that shares the pipe made it non-blocking, and it is empty
            import select

            select.select([stream], [], [])
            continue
        if not data:
            break
        pieces.append(data)
        remaining -= len(data)
    return b"".join(pieces)


def to_stream(opener: StorageOpener, source: Location, write: Callable[[bytes | memoryview], object]) -> int:
    """Write a file's bytes, verified, with ``write``; the number of bytes."""
    from openpaisdk.storage.backends.hdfs_checksum import ChecksumComparison

    backend, path = opener.open(source)
    info = backend.status(path)
    if info is None:
        raise opener.not_found(source)
    if info.is_folder:
        raise UsageError(f"{source.text} is a folder: only a file can be written to standard output.")
    source_file = backend.open(path)
    try:
        comparison = ChecksumComparison(source_file, None)
        # Each range costs a request, and its CRCs cost memory.
        for at, length in split_ranges(
            source_file.size, 4 * PART_BYTES if source_file.supports_checksum else source_file.size
        ):
            for chunk in comparison.observe(at, source_file.chunks(at, length)):
                write(chunk)
            comparison.confirm(at)
        source_file.check()
        if comparison.matches(source_file.size) is False:
            raise ConnectionFailed(f"{source.text} was damaged during the transfer: do not use the output.")
    except PaiError as e:
        if e.code != FILE_CHANGED:
            raise
        # Bytes already written to a stream cannot be taken back: no target "is unchanged" here.
        message = f"{source.text} changed while it was copied: do not use the output."
        raise PaiError(message, code=e.code, hint=e.hint) from None
    finally:
        source_file.close()
    return source_file.size
