"""Walk of a local folder, without the ignored files."""

from __future__ import annotations

import errno
import os
import stat

from openpaisdk.storage.file_info import folder_listings, format_size, join
from paiprotocol.errors import PaiError
from paiprotocol.transfer.sorted_files import SortedFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.storage.file_info import DirectoryListing
    from openpaisdk.storage.ignore import Rule

MAX_SIZE_LOOKUPS = 20_000
"""Entries of skipped folders that are inspected to report their size."""
MAX_NAMES_SHOWN = 4
_BROKEN_LINK = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class SkippedFiles:
    """Skipped files and folders of a copy, reported to the user."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.others: dict[str, str] = {}
        self._lookups_left = MAX_SIZE_LOOKUPS
        self._is_incomplete = False

    def add(self, name: str, full: str) -> None:
        self.sizes[name] = self._size(full)

    def add_other(self, name: str, reason: str) -> None:
        self.others[name] = reason

    def __bool__(self) -> bool:
        return bool(self.sizes or self.others)

    def __str__(self) -> str:
        largest = sorted(self.sizes.items(), key=lambda item: -item[1])
        more = "more than " if self._is_incomplete else ""
        names = [
            f"{name} {more if size else ''}{format_size(size)}" for name, size in largest[:MAX_NAMES_SHOWN]
        ]
        if rest := largest[MAX_NAMES_SHOWN:]:
            names.append(f"{len(rest)} others {format_size(sum(size for _, size in rest))}")
        names += [f"{name} ({reason})" for name, reason in list(self.others.items())[:MAX_NAMES_SHOWN]]
        if len(self.others) > MAX_NAMES_SHOWN:
            names.append(f"{len(self.others) - MAX_NAMES_SHOWN} more of these")
        return ", ".join(names)

    def _size(self, full: str) -> int:
        total = 0
        pending = [full]
        while pending:
            at = pending.pop()
            try:
                with os.scandir(at) as found:
                    for item in found:
                        self._lookups_left -= 1
                        if self._lookups_left < 0:
                            self._is_incomplete = True
                            return total
                        if item.is_dir(follow_symlinks=False):
                            pending.append(item.path)
                        else:
                            total += item.stat(follow_symlinks=False).st_size
            except NotADirectoryError:
                total += os.lstat(at).st_size
            except OSError:
                pass
        return total


def walk(
    root: str, *, use_ignore_files: bool = False, skipped: SkippedFiles | None = None, max_files: int = 0
) -> Iterator[DirectoryListing]:
    """Folders of a tree, each before its contents, in the order of ``file_info.walk_order``.

    A link to a file counts as the file; a link to a folder is not followed, but added to ``skipped``.
    With ``max_files``, a larger folder comes in several listings (``SortedFiles``).
    """
    rules: list[Rule] = []
    if use_ignore_files:
        from openpaisdk.storage.ignore import rules_above

        rules = rules_above(root)
    if skipped is None:
        skipped = SkippedFiles()
    # No recursion: a tree may be deeper than the interpreter's stack.
    pending = [("", rules)]
    while pending:
        path, rules = pending.pop()
        here = os.path.join(root, path) if path else root
        if use_ignore_files:
            from openpaisdk.storage.ignore import read_rules

            rules = rules + read_rules(here, path + "/" if path else "")
        files = SortedFiles(max_files)
        folders, others = _list_folder(here, path, rules, use_ignore_files, skipped, files)
        yield from folder_listings(path, files, folders, others)
        pending += [(join(path, name), rules) for name in reversed(folders)]


def _list_folder(
    here: str, path: str, rules: list[Rule], ignoring: bool, skipped: SkippedFiles, files: SortedFiles
) -> tuple[list[str], list[str]]:
    """Add the files of a folder to ``files``; returns the names of its folders, and of what is neither."""
    add = files.add
    folders: list[str] = []
    others: list[str] = []

    def skip(name: str, reason: str) -> None:
        others.append(name)
        skipped.add_other(join(path, name), reason)

    if ignoring:
        from openpaisdk.storage.ignore import ALWAYS_IGNORED, is_ignored
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                name = entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if ignoring and (
                    name in ALWAYS_IGNORED or (rules and is_ignored(join(path, name), is_folder, rules))
                ):
                    skipped.add(join(path, name), entry.path)
                    continue
                if is_folder:
                    folders.append(name)
                    continue
                try:
                    status = entry.stat()
                except OSError as e:
                    if entry.is_symlink() and e.errno in _BROKEN_LINK:
                        skip(name, "a link to nothing")
                    elif not isinstance(e, FileNotFoundError):
                        raise
                    continue  # deleted since it was listed
                mode = status.st_mode
                if stat.S_ISREG(mode):
                    add(name, (status.st_size, status.st_mtime_ns, mode & 0o7777))
                elif stat.S_ISDIR(mode):
                    skip(name, "a link to a folder")
                else:
                    skip(name, "neither a file nor a folder")
    except OSError as e:
        raise PaiError(
            f"{e.filename or here} cannot be read: {e.strerror}.",
            hint="Leave it out with a .paiignore file, or make it readable."
            if ignoring
            else "Make it readable, or move it elsewhere.",
        ) from None
    folders.sort()
    return folders, others
