"""Retention: removes finished jobs, unused sources and expired keys of a running cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from paicluster.controller.retention_clock import RetentionClock
from paicluster.engines.interface import Engine
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.resource_requests import decode
from paicluster.store import Store, jobs, removal, source_owners, users
from paicluster.store.job_inserts import forget_keys
from paiprotocol.errors import PaiError

log = logging.getLogger("paicluster.retention")

_BATCH = 200
_INTERVAL_S = 3600.0
_KEY_RETENTION_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Finished jobs are removed, oldest first, when they are older than ``days``, more than ``jobs``, or
    when their folders together take more than ``size_mb``; None sets no limit."""

    days: float | None = 30.0
    jobs: int | None = 100_000
    size_mb: int | None = None


@dataclass(slots=True)
class SweepResult:
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
        policy: RetentionPolicy,
        sources: Path,
        *,
        initial_delay_s: float = 60.0,
        clock_file: Path | None = None,
        on_remove: Callable[[Sequence[int]], Awaitable[None]] | None = None,
    ):
        """``on_remove(job_ids)`` deletes what jobs have elsewhere, while their rows still exist.

        ``clock_file``: where the last time seen is kept.
        """
        self._on_remove = on_remove
        self._initial_delay_s = initial_delay_s
        self._store = store
        self._engines = EngineRouter.of(engine)
        self._policy = policy
        self._sources = sources
        self._clock = RetentionClock(clock_file)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._clock.open()
        self._clock.save()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._clock.save()

    async def _run(self) -> None:
        await asyncio.sleep(self._initial_delay_s)
        while True:
            try:
                removed = await self.sweep()
                if removed:
                    log.info(
                        "removed %d finished jobs with %d task folders, and %d unused sources",
                        removed.jobs,
                        removed.folders,
                        removed.sources,
                    )
            except PaiError as error:
                log.warning("retention sweep failed: %s", error)
            except Exception:
                log.exception("retention sweep failed")
            self._clock.save()
            await asyncio.sleep(_INTERVAL_S)

    async def sweep(self) -> SweepResult:
        """Remove everything that the policy does not keep."""
        removed = SweepResult()
        now_ms = self._clock.now_ms()
        policy = self._policy
        if policy.days is not None:
            before_ms = now_ms - int(policy.days * 24 * 3600 * 1000)
            while old := await self._oldest(_BATCH, before_ms):
                await self._remove(old, removed)
        if policy.jobs is not None:
            excess = await self._store.read(removal.count_finished) - policy.jobs
            while excess > 0:
                old = await self._oldest(min(excess, _BATCH))
                if not old:
                    break
                await self._remove(old, removed)
                excess -= len(old)
        if policy.size_mb is not None:
            await self._remove_until_small(policy.size_mb << 20, removed)
        removed.sources = await self._remove_sources(now_ms)
        await self._store.write(lambda conn: forget_keys(conn, now_ms - _KEY_RETENTION_MS))
        await self._store.write(lambda conn: users.delete_expired(conn, now_ms))
        return removed

    async def _oldest(self, limit: int, before_ms: int | None = None) -> list[int]:
        """The oldest removable jobs. A job that another depends on stays: its final state is needed."""

        def query(conn: Connection) -> list[int]:
            requests = removal.unfinished_requests(conn, '"after"')
            dependencies = {
                dependency.framework for request in requests for dependency in decode(request).dependencies
            }
            return removal.oldest_finished(conn, limit, before_ms=before_ms, excluding=dependencies)

        return await self._store.read(query)

    async def remove_job(self, job_id: int) -> bool:
        """Remove one job now, on request of its owner; False when it is unfinished."""
        row = await self._store.read(lambda conn: jobs.get_job_by_id(conn, job_id))
        if row is None or row.sub_state != "Completed":
            return False
        await self._remove([job_id], SweepResult())
        return True

    async def _remove(self, job_ids: Sequence[int], removed: SweepResult) -> None:
        # Folders first: after a crash in between, the next sweep finds the jobs and continues.
        uids = await self._store.read(lambda conn: removal.uids_of(conn, job_ids))
        all_uids = [uid for of_job in uids.values() for uid in of_job]
        await self._engines.remove(all_uids)
        if self._on_remove is not None:
            await self._on_remove(job_ids)
        removed.folders += len(all_uids)
        removed.jobs += await self._store.write(lambda conn: removal.delete_jobs(conn, job_ids))

    async def _remove_until_small(self, limit: int, removed: SweepResult) -> None:
        """Unfinished jobs do not count: one large job would otherwise leave no history."""
        finished = await self._store.read(removal.finished_uids)
        sizes = {uid: size for uid, size in (await self._engines.sizes()).items() if uid in finished}
        total = sum(sizes.values())
        while total > limit:
            old = await self._oldest(_BATCH)
            if not old:
                return
            uids = await self._store.read(lambda conn, old=old: removal.uids_of(conn, old))  # type: ignore[misc]
            to_remove = []
            for job_id in old:
                if total <= limit:
                    break
                to_remove.append(job_id)
                total -= sum(sizes.get(uid, 0) for uid in uids[job_id])
            await self._remove(to_remove, removed)

    async def _remove_sources(self, now_ms: int) -> int:
        """Remove uploaded sources that no unfinished job and no template of their owners uses, and that no
        client has requested since the limit.
        """
        if self._policy.days is None or not self._sources.is_dir():
            return 0
        before = now_ms / 1000 - self._policy.days * 24 * 3600
        count = 0
        for path in self._sources.iterdir():
            if not _older(path, before):
                continue
            used = await self._store.read(partial(_is_used, sha256=path.stem))
            # Checked again: a client that requested it meanwhile is about to submit a job that uses it.
            if not used and _older(path, before):
                path.unlink(missing_ok=True)
                await self._store.write(partial(source_owners.forget_archive, sha256=path.stem))
                count += 1
        return count


def _is_used(conn: Connection, sha256: str) -> bool:
    return removal.used_by_unfinished(conn, sha256) or removal.used_by_template(conn, sha256)


def _older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False
