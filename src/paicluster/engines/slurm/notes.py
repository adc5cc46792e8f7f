"""Tasks say that something happened by a note: an empty file each, in one folder that all of them see."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from paicluster.engines.interface import Hint
from paicluster.engines.slurm import folder, looking
from paicluster.engines.slurm.gangs import Gangs

log = logging.getLogger(__name__)

# The notes are listed this often after something happened, and ever more seldom the longer nothing does.
_SOONEST_S = 0.02
_LATEST_S = 1.0
_PATIENCE = 0.02
# By then even NFS shows the files that a note is about, whatever it remembers.
_SHOWN_AFTER_S = 120.0


class Notes:
    def __init__(self, home: folder.Home, gangs: Gangs, hint: Hint):
        self._home = home
        self._gangs = gangs
        self._hint = hint
        # Set when there is something to watch.
        self._busy = asyncio.Event()
        self._last_change = time.monotonic()
        # What others put there and cannot be removed like a file.
        self._stubborn: set[str] = set()
        # Notes of what is not to be seen yet, and until when it is looked for.
        self._early: dict[str, float] = {}

    def wake(self) -> None:
        """There is something to watch."""
        self._last_change = time.monotonic()
        self._busy.set()

    async def read(self) -> None:
        while True:
            if not self._gangs:
                self._early.clear()
                self._busy.clear()
                await self._busy.wait()
            quiet = time.monotonic() - self._last_change
            await asyncio.sleep(min(_LATEST_S, max(_SOONEST_S, _PATIENCE * quiet)))
            self._look_for_early_ones()
            try:
                names = set(os.listdir(self._home.notes))
            except OSError as error:
                log.warning("The notes of tasks cannot be read: %s", error)
                await asyncio.sleep(_LATEST_S)
                continue
            self._stubborn &= names
            for name in names - self._stubborn:
                self._take(name)

    def _take(self, name: str) -> None:
        self._last_change = time.monotonic()
        try:
            (self._home.notes / name).unlink(missing_ok=True)
        except OSError:
            self._stubborn.add(name)
            return
        uid = name.partition(".")[0]
        self._hint(uid)
        if self._gangs.of(uid) is not None and not self._is_shown(name):
            self._early[name] = self._last_change + _SHOWN_AFTER_S

    def _look_for_early_ones(self) -> None:
        now = time.monotonic()
        for name, until in list(self._early.items()):
            if self._is_shown(name):
                del self._early[name]
                self._hint(name.partition(".")[0])
            elif now > until:
                del self._early[name]

    def _is_shown(self, name: str) -> bool:
        """Whether what the note is about is to be seen too: a file system may show one before the other."""
        uid, _, what = name.partition(".")
        return looking.says(self._home, uid, what)
