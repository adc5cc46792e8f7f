"""Collector of metrics in event files of tasks that run: stores their summaries while clients look at them.

A file is read whole, in a process of its own, which is why none is read that no client looks at. A request
for metrics names its jobs and waits for a moment at most: if reading takes longer, the next one has the
values. Those of a task replace the ones that are stored, so that it does not matter which server stored
what. What a task has at its end, the `MetricCollector` reads.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from paicluster.logs.event_file_worker import event_files_size
from paicluster.services.event_metrics import event_metrics
from paicluster.store import Store, metric_rows
from paiprotocol.errors import StoreError

T = TypeVar("T")

log = logging.getLogger("paicluster.metrics")

# Between two reads of the files of a task, and as many times what the last one cost.
_INTERVAL_S = 30.0
_COST_FACTOR = 10.0
# Between two questions to the store which tasks of a job run.
_LOOK_INTERVAL_S = 5.0
# What a request waits for values.
_WAIT_S = 1.0
# Tasks whose folders are searched before other work of the loop.
_BATCH = 500
# Part of the time that reading may take.
_MAX_SHARE = 0.5
# Tasks whose last read is known; of one that was forgotten the files are read again.
MAX_KNOWN = 20_000
# Beyond the size of any file: they are read again.
_UNKNOWN_SIZE = -1


class _GrownFiles(NamedTuple):
    """Event files of a task that are larger than they were."""

    uid: str
    folder: Path
    size: int


class _LastRead(NamedTuple):
    """Size of a task's event files when they were read, and when they may be read again."""

    size: int
    due_s: float


class EventMetricCollector:
    """``folder_of`` returns the folder of an attempt. One task's files are read at a time."""

    def __init__(
        self,
        store: Store,
        folder_of: Callable[[str], Path],
        *,
        interval_s: float = _INTERVAL_S,
        cost_factor: float = _COST_FACTOR,
        look_interval_s: float = _LOOK_INTERVAL_S,
        wait_s: float = _WAIT_S,
        max_known: int = MAX_KNOWN,
    ) -> None:
        self._store = store
        self._folder_of = folder_of
        self._interval_s = interval_s
        self._cost_factor = cost_factor
        self._look_interval_s = look_interval_s
        self._wait_s = wait_s
        self._max_known = max_known
        # Of its own: a file system that does not answer must not take the threads of others.
        self._thread = ThreadPoolExecutor(1, "event-metrics")
        # Jobs of which something is to be read; those of them whose tasks are not known yet.
        self._open: set[int] = set()
        self._requested: set[int] = set()
        self._is_requested = asyncio.Event()
        # Exchanged for another one when it is set: after each step of the loop.
        self._has_advanced = asyncio.Event()
        # When to look at a job again.
        self._next_look_s: dict[int, float] = {}
        # By job: each has its turn, however many tasks another one has.
        self._grown: dict[int, deque[_GrownFiles]] = {}
        self._known: dict[str, _LastRead] = {}
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        # The process that reads now. A server that stops does not wait for it.
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._is_closed = True
        if self._worker is not None:
            self._worker.kill()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def request(self, job_ids: Iterable[int]) -> set[int]:
        """Read what the running tasks of these jobs have written, soon; those with new values, perhaps."""
        now_s = time.monotonic()
        found = {one for one in job_ids if self._next_look_s.get(one, 0.0) <= now_s}
        self._next_look_s.update(dict.fromkeys(found, now_s + self._look_interval_s))
        new = found - self._open
        if new:
            self._open |= new
            self._requested |= new
            self._is_requested.set()
        return found

    async def catch_up(self, job_ids: Iterable[int]) -> None:
        """As `request`, and wait until it is stored, but for a moment only."""
        wanted = self.request(job_ids)
        try:
            async with asyncio.timeout(self._wait_s):
                while not wanted.isdisjoint(self._open):
                    await self._has_advanced.wait()
        except TimeoutError:
            pass

    async def _run(self) -> None:
        while True:
            if not self._grown:
                await self._is_requested.wait()
            began_s = time.monotonic()
            try:
                if self._requested:
                    await self._look()
                if self._grown:
                    await self._read_next()
                self._has_failed = False
            except Exception as error:
                # The next request reads them.
                if not self._has_failed:
                    self._has_failed = True
                    expected = isinstance(error, StoreError)
                    log.warning("Metrics of event files are not stored: %s", error, exc_info=not expected)
            self._open = self._requested.union(self._grown)
            self._has_advanced.set()
            self._has_advanced = asyncio.Event()
            cost_s = time.monotonic() - began_s
            await asyncio.sleep(cost_s / _MAX_SHARE - cost_s)

    async def _look(self) -> None:
        """Find the tasks with new values."""
        job_ids = sorted(self._requested)
        self._requested.clear()
        self._is_requested.clear()
        now_s = time.monotonic()
        self._next_look_s = {one: due_s for one, due_s in self._next_look_s.items() if due_s > now_s}
        due = [
            file
            for file in await self._store.read(lambda conn: metric_rows.unread_files(conn, job_ids))
            if not file.has_ended and self._last(file.uid).due_s <= now_s
        ]
        for start in range(0, len(due), _BATCH):
            some = due[start : start + _BATCH]
            found = await self._in_thread(partial(self._sizes, [file.uid for file in some]))
            for file, (folder, size) in zip(some, found, strict=True):
                if size and size != self._last(file.uid).size:
                    self._grown.setdefault(file.job_id, deque()).append(_GrownFiles(file.uid, folder, size))
                else:
                    self._remember(file.uid, size, self._interval_s)

    async def _read_next(self) -> None:
        """Store what one task has; the next turn is that of another job."""
        job_id, files = next(iter(self._grown.items()))
        file = files.popleft()
        del self._grown[job_id]
        if files:
            self._grown[job_id] = files
        began_s = time.monotonic()
        size = _UNKNOWN_SIZE
        try:
            group = await self._in_thread(lambda: event_metrics(file.folder, self._started))
            # Of files that are not read to the end, the values from before stay while the task runs.
            if group is not None:
                await self._store.write(lambda conn: metric_rows.replace_group(conn, job_id, file.uid, group))
                size = file.size
        finally:
            cost_s = time.monotonic() - began_s
            self._remember(file.uid, size, max(self._interval_s, self._cost_factor * cost_s))

    def _last(self, uid: str) -> _LastRead:
        return self._known.get(uid) or _LastRead(_UNKNOWN_SIZE, 0.0)

    def _remember(self, uid: str, size: int, pause_s: float) -> None:
        self._known.pop(uid, None)
        while len(self._known) >= self._max_known:
            del self._known[next(iter(self._known))]
        self._known[uid] = _LastRead(size, time.monotonic() + pause_s)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- on the collector's thread -------------------------------------------------------------------

    def _started(self, worker: subprocess.Popen[bytes]) -> None:
        self._worker = worker
        if self._is_closed:
            worker.kill()

    def _sizes(self, uids: Sequence[str]) -> list[tuple[Path, int]]:
        folders = [self._folder_of(uid) for uid in uids]
        return [(folder, event_files_size(folder)) for folder in folders]
