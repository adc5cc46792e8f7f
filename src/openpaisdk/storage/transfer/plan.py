"""What a copy will do, before it does anything: what is new, what is there already, what stays behind."""

from __future__ import annotations

from openpaisdk.errors import PaiError, UsageError
from openpaisdk.storage.backends.base import FULL, MARK
from openpaisdk.storage.file_info import amount, is_name, is_same, join, largest, order
from openpaisdk.storage.local_walk import SkippedFiles
from openpaisdk.storage.location import problem_of_name
from openpaisdk.storage.transfer.spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from openpaisdk.storage.backends.base import Backend
    from openpaisdk.storage.file_info import DirectoryListing

NAMED = 5
MARKS = (MARK, MARK + ".done")


class TransferPlan:
    """The work. Paths in it are relative to ``source`` and ``target``; a single file has the path ``""``."""

    def __init__(self, source: str, target: str):
        self.source = source
        self.target = target
        self.new = Spool()
        self.count = 0
        self.size = 0
        self.folders: list[str] = []
        self.extra: list[str] = []
        """What only the target has: paths of files, and of folders with all in them."""
        self.skipped = SkippedFiles()
        self.forbidden: list[str] = []
        self.blocked: list[str] = []

    def __str__(self) -> str:
        said = f"{counted(self.count)}, {amount(self.size)}"
        if self.new.count == self.count and self.count:
            said += ", all new"
        else:
            said += f", {amount(self.new.size)} new" if self.new.count else ", nothing new"
            if self.new.count and self.new.size == 0:
                said = f"{counted(self.count)}, {amount(self.size)}, {counted(self.new.count)} new"
        if self.extra:
            said += f"; {len(self.extra)} to delete"
        if self.skipped:
            said += f"; skipped {self.skipped}"
        return said

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
        """The largest of what is to move, for an error about size."""
        alone = self.source.rstrip("/").rpartition("/")[2]
        return largest([(size, path or alone) for size, path in self.new.top()])

    def check(self, backend: Backend) -> None:
        """Refuse what cannot end well, before anything moves."""
        if self.forbidden:
            why = problem_of_name(self.forbidden[0])
            raise UsageError(
                f"{len(self.forbidden)} of these names cannot lie on {backend.where or 'that storage'}: "
                f"{named(self.forbidden)} ({why}).",
                hint="Rename them, or leave them out with a .paiignore file.",
            )
        if self.blocked:
            raise UsageError(
                "A file would have to take the place of a folder, a folder that of a file, or either that of "
                f"a link: {named(self.blocked)}.",
                hint="Remove it first, or use pai sync --delete.",
            )
        free = backend.free_bytes(self.target) if self.new.size else None
        if free is not None and self.new.size > free:
            raise PaiError(
                f"{amount(self.new.size)} have no room: {amount(free)} are free. The largest are "
                f"{self.largest()}.",
                code=FULL,
                status=507,
            )


def counted(count: int, what: str = "file") -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def named(names: list[str]) -> str:
    shown = [repr(name) if not name.isprintable() or " " in name else name for name in names[:NAMED]]
    return ", ".join(shown) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def compare(
    plan: TransferPlan,
    ours: Iterable[DirectoryListing],
    theirs: Iterator[DirectoryListing],
    *,
    hdfs_names: bool,
    deleting: bool = False,
    everything: bool = False,
    trusted: bool = False,
) -> TransferPlan:
    """Go through both trees side by side, in their common order; neither needs to fit into memory.

    Names that did not come from this machine (``trusted``) could lead anywhere, and are looked at first.
    """
    there = _Cursor(theirs)
    add = plan.new.add
    for folder in _in_order(ours):
        path = folder.path
        if not trusted:
            _refuse_ways_out(folder)
        match = there.at(path)
        kept = match.files if match else {}
        if match is None and path:
            plan.folders.append(path)
        front = path + "/" if path else ""
        for name, facts in folder.files.items():
            if name.endswith(MARKS):
                continue
            plan.count += 1
            plan.size += facts[0]
            found = kept.get(name)
            if found is not None and not everything and is_same(facts, found):
                continue
            add(front + name, facts)
            if found is None and hdfs_names and problem_of_name(name):
                plan.forbidden.append(front + name)
        if hdfs_names:
            plan.forbidden += [join(path, name) for name in folder.folders if problem_of_name(name)]
        if match is not None:
            clashes = [join(path, name) for name in match.folders if name in folder.files]
            clashes += [join(path, name) for name in folder.folders if name in kept]
            has = set(folder.folders)
            links = [front + name for name in match.others if name in has or name in folder.files]
            if deleting:
                plan.extra += links
                # What is on its way is somebody's who is at it, or goes with the next copy to its target.
                plan.extra += [
                    front + name for name in kept if name not in folder.files and not name.endswith(MARKS)
                ]
                plan.extra += [join(path, name) for name in match.folders if name not in has]
            else:
                plan.blocked += clashes + links
    return plan


def _refuse_ways_out(folder: DirectoryListing) -> None:
    """A storage gives names, not paths: none of them may lead out of the target."""
    steps = folder.path.split("/") if folder.path else []
    for name in (*steps, *folder.folders, *folder.files):
        if not is_name(name):
            raise PaiError(f"The storage lists {name!r}, which is not a name; nothing was copied.")


def _in_order(folders: Iterable[DirectoryListing]) -> Iterator[DirectoryListing]:
    """A tree that came in another order would look as if half of it were missing."""
    last = ""
    for folder in folders:
        now = order(folder.path)
        if now < last:
            raise PaiError(f"The storage listed {folder.path!r} out of order; nothing was changed.")
        last = now
        yield folder


class _Cursor:
    """Where we are in the other tree."""

    def __init__(self, folders: Iterator[DirectoryListing]):
        self._folders = _in_order(folders)
        self._held: DirectoryListing | None = next(self._folders, None)

    def at(self, path: str) -> DirectoryListing | None:
        """The folder of that path, if the other tree has it; those before it are passed over."""
        wanted = order(path)
        while self._held is not None and order(self._held.path) < wanted:
            self._held = next(self._folders, None)
        if self._held is not None and self._held.path == path:
            found = self._held
            self._held = next(self._folders, None)
            return found
        return None
