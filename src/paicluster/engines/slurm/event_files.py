"""Tasks say that something happened by a note: an empty file each, in one folder that all of them see."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import Executor

from openpaisdk.fileio.network_fs import is_on_network
from paicluster.engines.interface import Hint
from paicluster.engines.slurm import gang_folder, observe
from paicluster.engines.slurm.gang_registry import GangRegistry

log = logging.getLogger(__name__)

# The notes are listed this often after something happened, and ever more seldom the longer nothing does.
_SOONEST_S = 0.02
_LATEST_S = 1.0
_DEBOUNCE_S = 0.02
# What a note is about is looked for this often,
_AGAIN_AFTER_S = 0.25
# and by then even NFS shows it, whatever it remembers.
_SHOWN_AFTER_S = 120.0


class EventFileWatcher:
    def __init__(self, home: gang_folder.SlurmFolders, gangs: GangRegistry, files: Executor, hint: Hint):
        """``files``: where the files of tasks are looked at."""
        self._home = home
        self._gangs = gangs
        self._files = files
        self._hint = hint
        # Set when there is something to watch.
        self._busy = asyncio.Event()
        self._last_change = time.monotonic()
        # What others put there and cannot be removed like a file.
        self._stubborn: set[str] = set()
        # Notes of what is not to be seen yet, and until when it is looked for.
        self._early: dict[str, float] = {}
        self._look_at = 0.0

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
            await asyncio.sleep(min(_LATEST_S, max(_SOONEST_S, _DEBOUNCE_S * quiet)))
            try:
                names = set(os.listdir(self._home.notes))
            except OSError as error:
                log.warning("The notes of tasks cannot be read: %s", error)
                await asyncio.sleep(_LATEST_S)
                continue
            self._stubborn &= names
            for name in names - self._stubborn:
                self._take(name)
            if self._early and time.monotonic() >= self._look_at:
                await self._look_for_early_ones()

    def _take(self, name: str) -> None:
        self._last_change = time.monotonic()
        try:
            (self._home.notes / name).unlink(missing_ok=True)
        except OSError:
            self._stubborn.add(name)
            return
        uid, _ = _parts(name)
        self._hint(uid)
        if self._gangs.of(uid) is not None and is_on_network(self._home.notes):
            self._early[name] = self._last_change + _SHOWN_AFTER_S

    async def _look_for_early_ones(self) -> None:
        """A file system may show a note before what it is about: then somebody has to look again."""
        names = list(self._early)

        def look() -> list[str]:
            return [name for name in names if observe.says(self._home, *_parts(name))]

        shown = await asyncio.get_running_loop().run_in_executor(self._files, look)
        now = time.monotonic()
        self._look_at = now + _AGAIN_AFTER_S
        for name in shown:
            del self._early[name]
            self._hint(_parts(name)[0])
        self._early = {name: until for name, until in self._early.items() if until > now}


def _parts(name: str) -> tuple[str, str]:
    """Whose note it is, and of what."""
    uid, _, what = name.partition(".")
    return uid, what
