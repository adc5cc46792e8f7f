"""Local files and folders to upload: collected completely before anything is sent."""

from __future__ import annotations

import os
import stat

from openpaisdk.storage.local_walk import SkippedFiles, walk
from paiprotocol.errors import PaiError, UsageError


class LocalFile:
    """A file to upload. ``name`` is its path relative to the folder that is uploaded."""

    __slots__ = ("name", "path", "size")

    def __init__(self, path: str, name: str, size: int):
        self.path = path
        self.name = name
        self.size = size


class LocalTree:
    """The files of a folder, its empty folders, and what is left out."""

    __slots__ = ("empty_folders", "files", "skipped")

    def __init__(self, files: list[LocalFile], empty_folders: list[str], skipped: SkippedFiles):
        self.files = files
        self.empty_folders = empty_folders
        self.skipped = skipped

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def collect_folder(root: str, *, use_ignore_files: bool = False) -> LocalTree:
    """Everything below a folder. Ignore files are those of ``pai sub``."""
    files: list[LocalFile] = []
    empty: list[str] = []
    skipped = SkippedFiles()
    for folder in walk(root, use_ignore_files=use_ignore_files, skipped=skipped):
        prefix = folder.path + "/" if folder.path else ""
        for name in sorted(folder.files):
            relative = _check_name(prefix + name)
            files.append(LocalFile(os.path.join(root, relative), relative, folder.files[name][0]))
        if not folder.files and not folder.folders and folder.path:
            empty.append(_check_name(folder.path))
    return LocalTree(files, empty, skipped)


def collect_file(path: str) -> LocalFile:
    """One regular file."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is neither a file nor a folder.")
    return LocalFile(path, _check_name(os.path.basename(path)), status.st_size)


def check_parent(target: str) -> None:
    """The folder of a file that is to be written must exist."""
    folder = os.path.dirname(target)
    if folder and not os.path.isdir(folder):
        raise PaiError(f"There is no folder {folder}.", hint="Create it, or choose another destination.")


def _check_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PaiError(
            f"The file name {name!r} is not valid UTF-8, as names in the cloud must be.",
            hint="Rename the file.",
        ) from None
    return name
