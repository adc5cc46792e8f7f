"""Event files: tasks signal a start or an end by an empty file in one folder that all nodes see."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from concurrent.futures import Executor

from paicluster.engines.common import folder_size
from paicluster.engines.interface import Hint
from paicluster.engines.slurm import gang_folder, observe
from paicluster.engines.slurm.gang_registry import GangRegistry
from pairuntime.local_files.network_fs import is_on_network

log = logging.getLogger(__name__)

# The folder is listed at this interval after an event, and less often the longer there is none.
_MIN_INTERVAL_S = 0.02
_MAX_INTERVAL_S = 1.0
# Part of the time without an event that is waited before the next listing.
_IDLE_FACTOR = 0.02
# Entries that are removed at a time.
_MAX_ENTRIES = 1000
# Entries that cannot be removed, whose names are kept.
_MAX_UNREMOVABLE = 10_000
# Interval of checks for the files an event belongs to,
_VISIBILITY_INTERVAL_S = 0.25
# which are visible after this time even on NFS, whatever it has cached.
_VISIBILITY_TIMEOUT_S = 120.0


class EventFileWatcher:
    """Lists the folder of event files and hints at the tasks concerned."""

    def __init__(self, home: gang_folder.SlurmFolders, gangs: GangRegistry, files: Executor, hint: Hint):
        """``files``: the thread that reads task folders."""
        self._home = home
        self._gangs = gangs
        self._files = files
        self._hint = hint
        # Set when there are gangs to watch.
        self._woken = asyncio.Event()
        self._last_change = time.monotonic()
        # Entries that cannot be removed, such as folders with an immutable file.
        self._unremovable: set[str] = set()
        # Events whose files are not visible yet, and until when they are checked.
        self._invisible: dict[str, float] = {}
        self._next_check = 0.0
        self._is_on_network = False

    def wake(self) -> None:
        """Wake the watcher: there are gangs to watch."""
        self._last_change = time.monotonic()
        self._woken.set()

    async def read(self) -> None:
        while True:
            if not self._gangs:
                self._invisible.clear()
                self._woken.clear()
                await self._woken.wait()
            idle_s = time.monotonic() - self._last_change
            await asyncio.sleep(min(_MAX_INTERVAL_S, max(_MIN_INTERVAL_S, _IDLE_FACTOR * idle_s)))
            try:
                # Not on the event loop: any account may leave any number of entries, and the file system of
                # other machines may not answer.
                names = await asyncio.to_thread(self._remove_some)
            except OSError as error:
                log.warning("The event files of tasks cannot be listed: %s", error)
                await asyncio.sleep(_MAX_INTERVAL_S)
                continue
            for name in names:
                self._consume(name)
            if self._invisible and time.monotonic() >= self._next_check:
                await self._check_invisible()

    def _remove_some(self) -> list[str]:
        """Remove entries, up to a number; the names of those that were events."""
        self._is_on_network = is_on_network(self._home.events)
        with os.scandir(self._home.events) as entries:
            left = (entry.name for entry in entries if entry.name not in self._unremovable)
            names = list(itertools.islice(left, _MAX_ENTRIES))
        events = []
        for name in names:
            path = self._home.events / name
            try:
                path.unlink(missing_ok=True)
                events.append(name)
            except OSError:
                # A folder that a task of any user has made.
                folder_size.remove_tree(path)
                if os.path.lexists(path) and len(self._unremovable) < _MAX_UNREMOVABLE:
                    self._unremovable.add(name)
        return events

    def _consume(self, name: str) -> None:
        self._last_change = time.monotonic()
        uid, _ = _parts(name)
        self._hint(uid)
        if self._gangs.of(uid) is not None and self._is_on_network:
            self._invisible[name] = self._last_change + _VISIBILITY_TIMEOUT_S

    async def _check_invisible(self) -> None:
        """A file system may show an event before its files: check again until they are visible."""
        names = list(self._invisible)

        def check() -> list[str]:
            return [name for name in names if observe.event_is_visible(self._home, *_parts(name))]

        visible = await asyncio.get_running_loop().run_in_executor(self._files, check)
        now = time.monotonic()
        self._next_check = now + _VISIBILITY_INTERVAL_S
        for name in visible:
            del self._invisible[name]
            self._hint(_parts(name)[0])
        self._invisible = {name: until for name, until in self._invisible.items() if until > now}


def _parts(name: str) -> tuple[str, str]:
    """The task's uid and the event."""
    uid, _, event = name.partition(".")
    return uid, event
