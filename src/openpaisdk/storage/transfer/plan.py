"""Transfer plan: the files to copy, those that are current, those to delete and those that are skipped."""

from __future__ import annotations

from openpaisdk.storage.backends.base import PARTIAL_SUFFIX, STORAGE_FULL
from openpaisdk.storage.file_info import (
    format_size,
    is_unchanged,
    is_valid_name,
    join,
    list_largest,
    walk_order,
)
from openpaisdk.storage.local_walk import SkippedFiles
from openpaisdk.storage.transfer.spool import Spool
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import DirectoryListing

MAX_NAMES_SHOWN = 5
PARTIAL_SUFFIXES = (PARTIAL_SUFFIX, PARTIAL_SUFFIX + ".done")


class TransferPlan:
    """Work of one transfer. Paths are relative to ``source`` and ``target``; a single file has the path
    ``""``."""

    def __init__(self, source: str, target: str):
        self.source = source
        self.target = target
        self.new = Spool()
        self.count = 0
        self.size = 0
        self.folders: list[str] = []
        self.extra: list[str] = []
        """Paths that only the target has: files, and folders with their contents."""
        self.skipped = SkippedFiles()
        self.invalid_names: list[str] = []
        self.conflicts: list[str] = []

    def __str__(self) -> str:
        text = f"{count_of(self.count)}, {format_size(self.size)}"
        if self.new.count == self.count and self.count:
            text += ", all new"
        else:
            text += f", {format_size(self.new.size)} new" if self.new.count else ", nothing new"
            if self.new.count and self.new.size == 0:
                text = f"{count_of(self.count)}, {format_size(self.size)}, {count_of(self.new.count)} new"
        if self.extra:
            text += f"; {len(self.extra)} to delete"
        if self.skipped:
            text += f"; skipped {self.skipped}"
        return text

    def as_mapping(self) -> dict[str, object]:
        return {
            "files": self.count,
            "bytes": self.size,
            "newFiles": self.new.count,
            "newBytes": self.new.size,
            "toDelete": self.extra,
            "skipped": {**self.skipped.sizes, **dict.fromkeys(self.skipped.others, 0)},
        }

    def largest(self) -> str:
        """The largest files to copy, for an error about size."""
        file_name = self.source.rstrip("/").rpartition("/")[2]
        return list_largest([(size, path or file_name) for size, path in self.new.top()])

    def check(self, backend: Backend) -> None:
        """Raise what would make the transfer fail, before anything is transferred."""
        if self.invalid_names:
            reason = backend.invalid_name_reason(self.invalid_names[0])
            raise UsageError(
                f"{len(self.invalid_names)} of these names are invalid on {backend.url or 'that storage'}: "
                f"{list_names(self.invalid_names)} ({reason}).",
                hint="Rename them, or leave them out with a .paiignore file.",
            )
        if self.conflicts:
            raise UsageError(
                "A file would have to replace a folder, a folder a file, or either of them "
                f"a link: {list_names(self.conflicts)}.",
                hint="Remove it first, or use pai sync --delete.",
            )
        free = backend.free_bytes(self.target) if self.new.size else None
        if free is not None and self.new.size > free:
            raise PaiError(
                f"{format_size(self.new.size)} do not fit: {format_size(free)} are free. "
                f"The largest files are {self.largest()}.",
                code=STORAGE_FULL,
                status=507,
            )


def count_of(count: int, noun: str = "file") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def list_names(names: list[str]) -> str:
    shown = [
        repr(name) if not name.isprintable() or " " in name else name for name in names[:MAX_NAMES_SHOWN]
    ]
    return ", ".join(shown) + (
        f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    )


def compare_trees(
    plan: TransferPlan,
    source_folders: Iterable[DirectoryListing],
    target_folders: Iterator[DirectoryListing],
    *,
    invalid_name_reason: Callable[[str], str] | None = None,
    keeps_times: bool = True,
    delete: bool = False,
    force: bool = False,
    trusted: bool = False,
) -> TransferPlan:
    """Walk both trees in parallel, in their common order; neither has to fit into memory.

    Names from another machine (not ``trusted``) could lead out of the target, and are checked first.
    ``invalid_name_reason`` and ``keeps_times`` are those of the target (``Backend``).
    """
    cursor = _Cursor(target_folders)
    add = plan.new.add
    for folder in _check_order(source_folders):
        path = folder.path
        if not trusted:
            _check_names(folder)
        match = cursor.at(path)
        existing = match.files if match else {}
        if match is None and path:
            plan.folders.append(path)
        prefix = path + "/" if path else ""
        for name, file_stat in folder.files.items():
            if name.endswith(PARTIAL_SUFFIXES):
                continue
            plan.count += 1
            plan.size += file_stat[0]
            info = existing.get(name)
            if info is not None and not force and is_unchanged(file_stat, info, keeps_times=keeps_times):
                continue
            add(prefix + name, file_stat)
            if info is None and invalid_name_reason is not None and invalid_name_reason(name):
                plan.invalid_names.append(prefix + name)
        if invalid_name_reason is not None:
            plan.invalid_names += [join(path, name) for name in folder.folders if invalid_name_reason(name)]
        if match is not None:
            clashes = [join(path, name) for name in match.folders if name in folder.files]
            clashes += [join(path, name) for name in folder.folders if name in existing]
            folder_names = set(folder.folders)
            links = [prefix + name for name in match.others if name in folder_names or name in folder.files]
            if delete:
                plan.extra += links
                # A partial file belongs to a running copy, or is removed by the next copy to its target.
                plan.extra += [
                    prefix + name
                    for name in existing
                    if name not in folder.files and not name.endswith(PARTIAL_SUFFIXES)
                ]
                plan.extra += [join(path, name) for name in match.folders if name not in folder_names]
            else:
                plan.conflicts += clashes + links
    return plan


def _check_names(folder: DirectoryListing) -> None:
    """Check that a storage lists single path components: no path may lead out of the target."""
    steps = folder.path.split("/") if folder.path else []
    for name in (*steps, *folder.folders, *folder.files):
        if not is_valid_name(name):
            raise PaiError(f"The storage lists {name!r}, which is not a valid name; nothing was copied.")


def _check_order(folders: Iterable[DirectoryListing]) -> Iterator[DirectoryListing]:
    """Check the order of a walk: a tree in another order would look as if half of it were missing."""
    last = ""
    for folder in folders:
        now = walk_order(folder.path)
        if now < last:
            raise PaiError(f"The storage listed {folder.path!r} out of order; nothing was changed.")
        last = now
        yield folder


class _Cursor:
    """Cursor in the walk of the target tree."""

    def __init__(self, folders: Iterator[DirectoryListing]):
        self._folders = _check_order(folders)
        self._current: DirectoryListing | None = next(self._folders, None)

    def at(self, path: str) -> DirectoryListing | None:
        """The folder of that path if the tree has it; folders before it are skipped."""
        sort_key = walk_order(path)
        while self._current is not None and walk_order(self._current.path) < sort_key:
            self._current = next(self._folders, None)
        if self._current is not None and self._current.path == path:
            folder = self._current
            self._current = next(self._folders, None)
            return folder
        return None
