"""Journal of attempt folders prepared before the launch is committed; a restarted server deletes them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

# A name of a folder: no part of a path.
_UID = re.compile(rb"[A-Za-z0-9-]{1,64}")


class PrelaunchJournal:
    """Uids of attempts, one per line of a file, which is truncated whenever no prelaunch is under way."""

    def __init__(self, file: Path):
        self._file = file
        self._fd = -1
        self._pending = 0

    def open(self) -> list[str]:
        """Open the file. Returns the attempts that a server left when it died.

        What a crash of the machine or its disk damaged is left out: a folder that is never committed only
        costs space.
        """
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return [uid.decode() for uid in self._file.read_bytes().split() if _UID.fullmatch(uid)]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def add(self, uids: Sequence[str]) -> bool:
        """Record attempts.

        False if the disk is full: they must not be prepared early. Else call `finish` later.
        """
        # The newline comes first, so that a truncated line damages only itself.
        line = "".join(f"\n{uid}" for uid in uids).encode()
        try:
            complete = os.write(self._fd, line) == len(line)
        except OSError:
            return False
        self._pending += complete
        return complete

    def finish(self) -> None:
        """A prelaunch recorded by `add` is committed or discarded."""
        self._pending -= 1
        if not self._pending:
            self.clear()

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
