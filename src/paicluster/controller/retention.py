"""What is kept of the past, and for how long. A running cluster cleans up by itself and says what it did."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from openpaisdk.errors import PaiError
from paicluster.engines.interface import Engine
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.resource_requests import decode
from paicluster.store import Store, jobs, removal, users
from paicluster.store.job_inserts import forget_keys

log = logging.getLogger("paicluster.housekeeping")

_AT_ONCE = 200
_EVERY_S = 3600.0
_KEYS_FOR_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Finished jobs are removed, oldest first, when they are older than ``days``, more than ``jobs``, or
    when their folders together take more than ``size_mb``; None sets no limit."""

    days: float | None = 30.0
    jobs: int | None = 100_000
    size_mb: int | None = None


@dataclass(slots=True)
class Removed:
    jobs: int = 0
    folders: int = 0
    sources: int = 0

    def __bool__(self) -> bool:
        return bool(self.jobs or self.sources)


class RetentionSweeper:
    def __init__(
        self,
        store: Store,
        engine: Engine | EngineRouter,
        keep: RetentionPolicy,
        sources: Path,
        *,
        first_after_s: float = 60.0,
        on_remove: Callable[[Sequence[int]], Awaitable[None]] | None = None,
    ):
        """``on_remove`` takes away what jobs have elsewhere, while they can still be looked at."""
        self._on_remove = on_remove
        self._first_after_s = first_after_s
        self._store = store
        self._engines = EngineRouter.of(engine)
        self._keep = keep
        self._sources = sources
        self._began = time.time(), _steady()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await asyncio.sleep(self._first_after_s)
        while True:
            try:
                removed = await self.clean()
                if removed:
                    log.info(
                        "removed %d finished jobs with %d task folders, and %d unused sources",
                        removed.jobs,
                        removed.folders,
                        removed.sources,
                    )
            except PaiError as error:
                log.warning("could not clean up: %s", error)
            except Exception:
                log.exception("could not clean up")
            await asyncio.sleep(_EVERY_S)

    async def clean(self) -> Removed:
        """Remove what the rules do not keep."""
        removed = Removed()
        now_ms = self._now_ms()
        keep = self._keep
        if keep.days is not None:
            before_ms = now_ms - int(keep.days * 24 * 3600 * 1000)
            while old := await self._oldest(_AT_ONCE, before_ms):
                await self._remove(old, removed)
        if keep.jobs is not None:
            too_many = await self._store.read(removal.count_over) - keep.jobs
            while too_many > 0:
                old = await self._oldest(min(too_many, _AT_ONCE))
                if not old:
                    break
                await self._remove(old, removed)
                too_many -= len(old)
        if keep.size_mb is not None:
            await self._remove_until_small(keep.size_mb << 20, removed)
        removed.sources = await self._remove_sources(now_ms)
        await self._store.write(lambda conn: forget_keys(conn, now_ms - _KEYS_FOR_MS))
        await self._store.write(lambda conn: users.delete_expired(conn, now_ms))
        return removed

    def _now_ms(self) -> int:
        """Not later than the time that passed allows: a clock that leaps ahead makes nothing old."""
        wall, steady = self._began
        return int(min(time.time(), wall + _steady() - steady) * 1000)

    async def _oldest(self, limit: int, before_ms: int | None = None) -> list[int]:
        """The oldest jobs that may go. One that another still waits for stays: it must find how it ended."""

        def look(conn: Connection) -> list[int]:
            needs = removal.unfinished_needs(conn, '"after"')
            awaited = {condition.framework for need in needs for condition in decode(need).after}
            return removal.oldest_over(conn, limit, before_ms=before_ms, but=awaited)

        return await self._store.read(look)

    async def remove_job(self, job_id: int) -> bool:
        """Remove one job now, because its owner says so; False when it is not over."""
        row = await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id))
        if row is None or row.sub_state != "Completed":
            return False
        await self._remove([job_id], Removed())
        return True

    async def _remove(self, job_ids: Sequence[int], removed: Removed) -> None:
        # Folders first: had we stopped in between, the next round would find the jobs and go on.
        uids = await self._store.read(lambda conn: removal.uids_of(conn, job_ids))
        every = [uid for of_job in uids.values() for uid in of_job]
        await self._engines.remove(every)
        if self._on_remove is not None:
            await self._on_remove(job_ids)
        removed.folders += len(every)
        removed.jobs += await self._store.write(lambda conn: removal.delete_jobs(conn, job_ids))

    async def _remove_until_small(self, limit: int, removed: Removed) -> None:
        """What unfinished jobs have on disk does not count: no history would be left beside a large one."""
        over = await self._store.read(removal.uids_over)
        sizes = {uid: size for uid, size in (await self._engines.sizes()).items() if uid in over}
        total = sum(sizes.values())
        while total > limit:
            old = await self._oldest(_AT_ONCE)
            if not old:
                return
            uids = await self._store.read(lambda conn, old=old: removal.uids_of(conn, old))  # type: ignore[misc]
            enough = []
            for job_id in old:
                if total <= limit:
                    break
                enough.append(job_id)
                total -= sum(sizes.get(uid, 0) for uid in uids[job_id])
            await self._remove(enough, removed)

    async def _remove_sources(self, now_ms: int) -> int:
        """Uploaded folders that no unfinished job names and nobody has asked for since the limit."""
        if self._keep.days is None or not self._sources.is_dir():
            return 0
        before = now_ms / 1000 - self._keep.days * 24 * 3600
        count = 0
        for path in self._sources.iterdir():
            if not _older(path, before):
                continue
            named = await self._store.read(partial(removal.named_by_unfinished, text=path.stem))
            # Looked at again: whoever asked for it meanwhile is about to submit a job that names it.
            if not named and _older(path, before):
                path.unlink(missing_ok=True)
                count += 1
        return count


def _steady() -> float:
    """Seconds since the machine started, those it slept through included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False
