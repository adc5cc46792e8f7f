"""Walking a folder of this machine, less what ignore files keep back."""

from __future__ import annotations

import errno
import os
import stat

from openpaisdk.errors import PaiError
from openpaisdk.storage.file_info import DirectoryListing, amount, join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.storage.file_info import FileStat
    from openpaisdk.storage.ignore import Rule

LOOKS = 20_000
"""How many entries of what is skipped are looked at to tell its size."""
NAMED = 4
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class SkippedFiles:
    """What stays behind, for the person to see: never silently."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.others: dict[str, str] = {}
        self._looks = LOOKS
        self._is_more = False

    def add(self, name: str, full: str) -> None:
        self.sizes[name] = self._size(full)

    def add_other(self, name: str, why: str) -> None:
        self.others[name] = why

    def __bool__(self) -> bool:
        return bool(self.sizes or self.others)

    def __str__(self) -> str:
        largest = sorted(self.sizes.items(), key=lambda item: -item[1])
        more = "more than " if self._is_more else ""
        said = [f"{name} {more if size else ''}{amount(size)}" for name, size in largest[:NAMED]]
        if rest := largest[NAMED:]:
            said.append(f"{len(rest)} others {amount(sum(size for _, size in rest))}")
        said += [f"{name} ({why})" for name, why in list(self.others.items())[:NAMED]]
        if len(self.others) > NAMED:
            said.append(f"{len(self.others) - NAMED} more of these")
        return ", ".join(said)

    def _size(self, full: str) -> int:
        total = 0
        waiting = [full]
        while waiting:
            at = waiting.pop()
            try:
                with os.scandir(at) as found:
                    for item in found:
                        self._looks -= 1
                        if self._looks < 0:
                            self._is_more = True
                            return total
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(item.path)
                        else:
                            total += item.stat(follow_symlinks=False).st_size
            except NotADirectoryError:
                total += os.lstat(at).st_size
            except OSError:
                pass
        return total


def walk(
    root: str, *, ignoring: bool = False, skipped: SkippedFiles | None = None
) -> Iterator[DirectoryListing]:
    """The folders of a tree, each before what is in it, in the order of ``entries.order``.

    A link to a file is taken for the file; a link to a folder is not followed, and named in ``skipped``.
    """
    rules: list[Rule] = []
    if ignoring:
        from openpaisdk.storage.ignore import rules_above

        rules = rules_above(root)
    if skipped is None:
        skipped = SkippedFiles()
    # Nothing recurses: a tree may be deeper than the interpreter goes.
    waiting = [("", rules)]
    while waiting:
        path, rules = waiting.pop()
        here = os.path.join(root, path) if path else root
        if ignoring:
            from openpaisdk.storage.ignore import read_rules

            rules = rules + read_rules(here, path + "/" if path else "")
        found = _look_into(here, path, rules, ignoring, skipped)
        yield found
        waiting += [(join(path, name), rules) for name in reversed(found.folders)]


def _look_into(
    here: str, path: str, rules: list[Rule], ignoring: bool, skipped: SkippedFiles
) -> DirectoryListing:
    files: dict[str, FileStat] = {}
    folders: list[str] = []
    others: list[str] = []

    def stays(name: str, why: str) -> None:
        others.append(name)
        skipped.add_other(join(path, name), why)

    if ignoring:
        from openpaisdk.storage.ignore import NEVER, is_ignored
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                name = entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if ignoring and (name in NEVER or (rules and is_ignored(join(path, name), is_folder, rules))):
                    skipped.add(join(path, name), entry.path)
                    continue
                if is_folder:
                    folders.append(name)
                    continue
                try:
                    found = entry.stat()
                except OSError as e:
                    if entry.is_symlink() and e.errno in _LEADS_NOWHERE:
                        stays(name, "a link to nothing")
                    elif not isinstance(e, FileNotFoundError):
                        raise
                    continue  # gone since it was listed
                mode = found.st_mode
                if stat.S_ISREG(mode):
                    files[name] = (found.st_size, found.st_mtime_ns, mode & 0o7777)
                elif stat.S_ISDIR(mode):
                    stays(name, "a link to a folder")
                else:
                    stays(name, "neither a file nor a folder")
    except OSError as e:
        raise PaiError(
            f"{e.filename or here} cannot be read: {e.strerror}.",
            hint="Leave it out with a .paiignore file, or make it readable.",
        ) from None
    folders.sort()
    return DirectoryListing(path, files, folders, others)
