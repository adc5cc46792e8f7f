"""Journal of appends in progress: each file's length before, so that interrupted appends can be undone."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournaledAppend:
    """One append in progress: the file's path and inode, and its length before the append."""

    name: str
    path: str
    inode: int
    length: int


class AppendJournal:
    """Folder with one small file per append in progress."""

    def __init__(self, folder: int):
        self._folder = folder

    def write(self, path: str, inode: int, length: int) -> JournaledAppend:
        entry = JournaledAppend(secrets.token_hex(16), path, inode, length)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(entry.name, flags, 0o600, dir_fd=self._folder), "w") as file:
            json.dump({"path": path, "inode": inode, "length": length}, file)
        return entry

    def remove(self, entry: JournaledAppend) -> None:
        os.unlink(entry.name, dir_fd=self._folder)

    def read_all(self) -> list[JournaledAppend]:
        """Appends that a crashed server left unfinished."""
        appends = []
        for name in os.listdir(self._folder):
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)) as file:
                try:
                    fields = json.load(file)
                    inode, length = int(fields["inode"]), int(fields["length"])
                    appends.append(JournaledAppend(name, str(fields["path"]), inode, length))
                except (ValueError, KeyError):
                    # The server died while writing the journal entry, so before it touched the file.
                    os.unlink(name, dir_fd=self._folder)
        return appends
