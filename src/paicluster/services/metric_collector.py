"""Collector of metrics: reads what tasks append to their files of metrics, and stores summaries of it.

While tasks run it looks at the size of each file once a second, and reads what is new; the file of a task
that ends is read to its end. What a server missed (it was killed, the job is from before) is read when the
metrics of the job are asked for. The offset is stored with the summaries, so that nothing is counted twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from paicluster.logs.event_file_worker import event_files_size
from paicluster.logs.metric_summary import SeriesSummary, summarize
from paicluster.logs.task_metrics import metrics_size, read_metric_lines
from paicluster.services.event_metrics import NO_EVENT_METRICS, event_metrics
from paicluster.store import Store, metric_rows
from paicluster.store.metric_rows import MetricPart, MetricValues
from paiprotocol.errors import StoreError

T = TypeVar("T")

log = logging.getLogger("paicluster.metrics")

_INTERVAL_S = 1.0
# Part of the time that reading may take: after a longer one follows a longer pause.
_MAX_SHARE = 0.1
# Read of one file at a time, and about as much of all files between two commits.
_READ_BYTES = 1 << 20
_BATCH_BYTES = 2 << 20
_BATCH_FILES = 500
# What one request reads before it answers with what is known; the collector goes on with the rest.
_REQUEST_TIMEOUT_S = 3.0


@dataclass(slots=True)
class _File:
    """File of metrics, and how much of it is stored; None: not known yet."""

    job_id: int
    uid: str
    offset: int | None = None
    has_ended: bool = False
    # Of the attempt; looked up on the collector's thread, because engines may look for it on the disk.
    folder: Path | None = None


class MetricCollector:
    """``running`` returns job and uid of the tasks that run now, ``folder_of`` the folder of an attempt."""

    def __init__(
        self,
        store: Store,
        folder_of: Callable[[str], Path],
        running: Callable[[], Sequence[tuple[int, str]]],
        *,
        interval_s: float = _INTERVAL_S,
        read_bytes: int = _READ_BYTES,
        request_timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> None:
        self._store = store
        self._folder_of = folder_of
        self._running = running
        self._interval_s = interval_s
        self._read_bytes = read_bytes
        self._request_timeout_s = request_timeout_s
        # Of its own: a file system that does not answer must not take the threads of others.
        self._thread = ThreadPoolExecutor(1, "metric-collector")
        self._turn = asyncio.Lock()
        self._files: dict[str, _File] = {}
        # Of ended tasks, and what requests left.
        self._to_finish: dict[str, _File] = {}
        self._changed = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self) -> None:
        self._unsubscribe = self._store.changes.subscribe(lambda job_id: self._changed.set())
        self._changed.set()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def finish(self, ended: Iterable[tuple[int, str]]) -> None:
        """Read the files of these task attempts, which have ended, to their end."""
        for job_id, uid in ended:
            file = self._files.pop(uid, None) or _File(job_id, uid)
            file.has_ended = True
            self._to_finish[uid] = file
            self._changed.set()

    async def catch_up(self, job_ids: Sequence[int]) -> frozenset[int]:
        """Store everything that the tasks of these jobs have logged until now.

        Returns the jobs of which this would take too long; the collector goes on with them.
        """
        unread = await self._store.read(lambda conn: metric_rows.unread_files(conn, job_ids))
        files = [_File(*file) for file in unread]
        deadline_s = time.monotonic() + self._request_timeout_s
        try:
            # One more second for a file system that answers slowly.
            async with asyncio.timeout(self._request_timeout_s + 1):
                files = await self._collect(files, deadline_s, marks_empty=True)
        except TimeoutError:
            pass
        self._to_finish.update((file.uid, file) for file in files if file.has_ended)
        if files:
            self._changed.set()
        return frozenset(file.job_id for file in files)

    # -- loop ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            started_s = time.monotonic()
            try:
                if await self._tick():
                    self._changed.set()
                self._has_failed = False
            except Exception as error:
                # The files are still there: the next tick reads them from the stored offsets on.
                self._files.clear()
                self._changed.set()
                if not self._has_failed:
                    self._has_failed = True
                    expected = isinstance(error, StoreError)
                    log.warning("Metrics could not be stored: %s", error, exc_info=not expected)
            cost_s = time.monotonic() - started_s
            await asyncio.sleep(max(self._interval_s, cost_s / _MAX_SHARE))

    async def _tick(self) -> bool:
        """Read what is new once; whether to do so again although no job changes."""
        running = self._running()
        known = self._files
        self._files = {uid: known.get(uid) or _File(job_id, uid) for job_id, uid in running}
        ended, self._to_finish = self._to_finish, {}
        left = ended
        try:
            unfinished = await self._collect([*ended.values(), *self._files.values()])
            left = {file.uid: file for file in unfinished if file.has_ended}
        finally:
            self._to_finish = {**left, **self._to_finish}
        return bool(running or left)

    # -- reading -------------------------------------------------------------------------------------

    async def _collect(
        self, files: Sequence[_File], deadline_s: float = math.inf, *, marks_empty: bool = False
    ) -> list[_File]:
        """Store what each file has beyond its offset; the files with an unread rest at the deadline.

        ``marks_empty``: files of ended tasks without metrics get a row as well, and are not read again.
        """
        remaining = await self._in_thread(lambda: self._grown(files, marks_empty))
        unknown = [file for file in remaining if file.offset is None]
        if unknown:
            uids = [file.uid for file in unknown]
            offsets = await self._store.read(lambda conn: metric_rows.read_offsets(conn, uids))
            for file in unknown:
                file.offset = offsets.get(file.uid, 0)
        while remaining and time.monotonic() < deadline_s:
            batch, rest = remaining[:_BATCH_FILES], remaining[_BATCH_FILES:]
            remaining = [*await self._collect_batch(batch), *rest]
        return remaining

    async def _collect_batch(self, batch: Sequence[_File]) -> list[_File]:
        """Store one part of each file, as many as are read together; the files with an unread rest."""
        async with self._turn:
            parts, unread = await self._in_thread(lambda: _read(batch, self._read_bytes))
            now_ms = int(time.time() * 1000)
            offsets: dict[str, int] = {}
            if parts:
                offsets = await self._store.write(lambda conn: metric_rows.add_parts(conn, parts, now_ms))
        for part in parts:
            stored = offsets.get(part.uid)
            if stored is None:  # the job was removed
                unread.discard(part.uid)
            elif stored != part.end:  # another reader was faster
                unread.add(part.uid)
        for file in batch:
            file.offset = offsets.get(file.uid, file.offset)
        return [file for file in batch if file.uid in unread]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- on the collector's thread -------------------------------------------------------------------

    def _grown(self, files: Sequence[_File], marks_empty: bool) -> list[_File]:
        """The files to read. Of most, only the size is asked for."""
        grown = []
        for file in files:
            if file.folder is None:
                file.folder = self._folder_of(file.uid)
            # What an ended task has logged is read once more: then it is known to be complete.
            known = 0 if file.has_ended else file.offset or 0
            if (marks_empty and file.has_ended) or metrics_size(file.folder) > known:
                grown.append(file)
        return grown


def _read(files: Sequence[_File], read_bytes: int) -> tuple[list[MetricPart], set[str]]:
    """Parts of files, until they are as long as one batch; and which files have more."""
    parts: list[MetricPart] = []
    unread: set[str] = set()
    size = 0
    for file in files:
        if size >= _BATCH_BYTES or file.folder is None:
            unread.add(file.uid)
            continue
        start = file.offset or 0
        lines, end, has_more = read_metric_lines(file.folder, start, read_bytes)
        size += end - start
        if has_more:
            unread.add(file.uid)
        is_last = file.has_ended and not has_more
        if end > start or is_last:
            summaries, is_omitted = summarize(lines)
            metrics = {name: _values(summary) for name, summary in summaries.items()}
            group = None
            # Most tasks have no event files.
            if is_last and event_files_size(file.folder):
                size += _BATCH_BYTES
                # What was read while the task ran is not its result.
                group = event_metrics(file.folder) or NO_EVENT_METRICS
            parts.append(MetricPart(file.job_id, file.uid, start, end, metrics, is_last, is_omitted, group))
    return parts, unread


def _values(summary: SeriesSummary) -> MetricValues:
    last = None if summary.last != summary.last else summary.last
    return MetricValues(
        summary.count,
        last,
        summary.last_step,
        summary.min,
        summary.min_step,
        summary.max,
        summary.max_step,
    )
