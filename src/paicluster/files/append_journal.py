"""Appends under way: how long each file was before, so that those a dead server left can be undone."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    name: str
    path: str
    inode: int
    length: int


class Journal:
    """A folder with one small file for each append that is under way."""

    def __init__(self, folder: int):
        self._folder = folder

    def write(self, path: str, inode: int, length: int) -> Note:
        note = Note(secrets.token_hex(16), path, inode, length)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(note.name, flags, 0o600, dir_fd=self._folder), "w") as file:
            json.dump({"path": path, "inode": inode, "length": length}, file)
        return note

    def remove(self, note: Note) -> None:
        os.unlink(note.name, dir_fd=self._folder)

    def left(self) -> list[Note]:
        """What a server that died left here."""
        found = []
        for name in os.listdir(self._folder):
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)) as file:
                try:
                    what = json.load(file)
                    found.append(Note(name, str(what["path"]), int(what["inode"]), int(what["length"])))
                except (ValueError, KeyError):
                    # It died while writing the note, so before it touched the file.
                    os.unlink(name, dir_fd=self._folder)
        return found
