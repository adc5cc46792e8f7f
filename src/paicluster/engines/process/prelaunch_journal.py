"""Which folders are laid before it is certain that their tasks start: a server that dies must leave none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class PrelaunchJournal:
    """Attempts, one a line of a file, which is emptied whenever all of them are settled."""

    def __init__(self, file: Path):
        self._file = file
        self._fd = -1
        self._unsettled = 0

    def open(self) -> list[str]:
        """Begin. Gives what a server that died had not settled."""
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return self._file.read_text().split()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def add(self, uids: Sequence[str]) -> bool:
        """False when there is no room for it: these must not be laid ahead. Else `settled` follows."""
        # The end of a line comes first, so that what is cut short spoils nothing but itself.
        line = "".join(f"\n{uid}" for uid in uids).encode()
        try:
            whole = os.write(self._fd, line) == len(line)
        except OSError:
            return False
        self._unsettled += whole
        return whole

    def finish(self) -> None:
        self._unsettled -= 1
        if not self._unsettled:
            self.clear()

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
