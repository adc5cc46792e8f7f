"""The jobs in hand: taken up from the database, all at a start and after a failed pass, others one by one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection

from openpaisdk.errors import PaiError
from openpaisdk.protocol import read_job
from paicluster.controller.allocations import Allocations
from paicluster.controller.attempt_tasks import AttemptTasks
from paicluster.controller.job_record import COMPLETED, PENDING, JobRecord
from paicluster.controller.starvation import STARVATION_S
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.pending_jobs import PendingJobs
from paicluster.scheduler.plan import PreemptibleJob
from paicluster.scheduler.resource_requests import Resources
from paicluster.store import Store, jobs
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow, TaskRow

log = logging.getLogger("paicluster.controller")

FEW = 4

Loaded = tuple[JobRow, tuple[TaskRow, ...], JobSpecRow, AttemptRow | None]


class ActiveJobs:
    """The jobs that have started or are about to, whose the tasks are, and what these hold.

    ``look_at`` is called with a job when a task of it has rested and may be started again.
    """

    def __init__(self, store: Store, engines: EngineRouter, look_at: Callable[[int], None]):
        self._store = store
        self._engines = engines
        self._look_at = look_at
        self.records: dict[int, JobRecord] = {}
        self.job_of: dict[str, int] = {}
        self.ledger = Allocations()
        self.rests: dict[str, asyncio.TimerHandle] = {}

    async def clear(self) -> None:
        """Forget everything, once no launch is under way any more."""
        for timer in self.rests.values():
            timer.cancel()
        launches = [r.launching for r in self.records.values() if r.launching is not None]
        await asyncio.gather(*launches, return_exceptions=True)
        for kept in (self.records, self.job_of, self.rests, self.ledger):
            kept.clear()

    async def load_all(self) -> list[JobRow]:
        """Every job that is not over; those that merely wait are given back instead."""
        waiting, loaded = await self._store.read(read_active)
        for row, tasks, spec, attempt in loaded:
            self._adopt(row, tasks, spec, attempt)
        return waiting

    async def refresh(self, job_ids: Iterable[int]) -> list[JobRecord]:
        """Those of these jobs that are not over: unknown ones are taken up, known ones may be to stop now."""
        wanted = list(job_ids)
        unknown = [job_id for job_id in wanted if job_id not in self.records]
        known = [job_id for job_id in wanted if job_id in self.records]
        if len(wanted) <= FEW:
            rows, stops = self._store.read_inline(lambda conn: read_some(conn, unknown, known))
        else:
            rows, stops = await self._store.read(lambda conn: read_some(conn, unknown, known))
        for row, spec in rows:
            self._adopt(row, [], spec, None)
        for job_id, execution_type in stops.items():
            record = self.records[job_id]
            record.row = replace(record.row, execution_type=execution_type)
        return [self.records[job_id] for job_id in wanted if job_id in self.records]

    async def waited_since(self, waiting: Iterable[JobRow]) -> dict[tuple[str, str], float]:
        """For :meth:`Patience.resume`, by the monotonic clock."""
        started = [record.row for record in self.records.values()]
        now_ms, now = int(time.time() * 1000), time.monotonic()
        since = await self._store.read(
            lambda conn: waiting_since(conn, waiting, started, now_ms - int(STARVATION_S * 1000))
        )
        return {place: now - max(0, now_ms - began) / 1000 for place, began in since.items()}

    def is_handed_over(self, record: JobRecord) -> bool:
        """Whether its engine finds the places by itself."""
        return record.row.vc in self._engines.self_scheduling

    def preemptible_jobs(self, is_left_out: Callable[[int], bool]) -> list[PreemptibleJob]:
        """Those that can be made to give way, latest started first, with what they hold."""
        able = [
            record
            for record in self.records.values()
            if record.preemptible
            and record.live
            and not self.is_handed_over(record)
            and not is_left_out(record.row.id)
        ]
        able.sort(key=lambda record: record.row.launched_ms or int(time.time() * 1000), reverse=True)
        held: dict[int, list[tuple[str, Resources, tuple[int, ...]]]] = {}
        if able:
            for entry in self.ledger.held():
                held.setdefault(entry.job_id, []).append((entry.node, entry.amount, entry.gpus))
        return [PreemptibleJob(r.row.id, tuple(held.get(r.row.id, ())), r.preempting) for r in able]

    def partly_started(self, waiting: PendingJobs) -> dict[int, tuple[tuple[tuple[int, ...], ...], int]]:
        """Those without a gang of which tasks wait: which of each role, and how many may start now."""
        found = {}
        for job_id, record in self.records.items():
            if not record.job.gang and job_id in waiting:
                limit = record.request().need.limit
                room = limit - len(record.live) if limit else 1 << 30
                found[job_id] = (record.unstarted(), room)
        return found

    def back_off(self, record: JobRecord, task: TaskRow, rested_s: float) -> None:
        """What is left of the rest before a task is started again, if it is."""
        pause_s = record.pause_before_retry(task)
        # The clock may have been set back since it ended.
        left_s = min(pause_s, pause_s - rested_s)
        if left_s > 0:
            record.backing_off.add(task.uid)
            loop = asyncio.get_running_loop()
            self.rests[task.uid] = loop.call_later(left_s, self.backoff_over, record, task.uid)

    def backoff_over(self, record: JobRecord, uid: str) -> None:
        self.rests.pop(uid, None)
        record.backing_off.discard(uid)
        if self.records.get(record.row.id) is record:
            self._look_at(record.row.id)

    def _adopt(
        self, row: JobRow, tasks: Iterable[TaskRow], spec: JobSpecRow, attempt: AttemptRow | None
    ) -> None:
        try:
            job = read_job(spec.job, stored=True)
        except PaiError as error:
            # One job that cannot be read must not keep all others from running.
            log.error("The job %s cannot be read and is left as it is: %s", row.framework, error)  # noqa: TRY400
            return
        except Exception:
            log.exception("The job %s cannot be read and is left as it is.", row.framework)
            return
        record = JobRecord(row, job, spec.sealed, attempt)
        # Of each task the latest attempt; they come oldest first.
        latest = {(task.role, task.task_index): task for task in tasks}
        record.tasks = AttemptTasks(job.task_roles, latest.values())
        self.records[row.id] = record
        for task in record.tasks.values():
            self.job_of[task.uid] = row.id
            if task.over:
                self.back_off(record, task, time.time() - (task.completed_ms or 0) / 1000)
            elif not self.is_handed_over(record):
                self.ledger.take(task, record.holder())


def read_active(conn: Connection) -> tuple[list[JobRow], list[Loaded]]:
    """The jobs that merely wait; and all others that are not over, whole."""
    waiting: list[JobRow] = []
    loaded: list[Loaded] = []
    for active in jobs.active_jobs(conn):
        job = active.job
        if job.sub_state == PENDING and job.execution_type == "START":
            waiting.append(job)
            continue
        spec = jobs.job_spec(conn, job.id)
        if spec is not None:
            attempt = next((a for a in jobs.attempts_of(conn, job.id) if a.attempt == job.attempt), None)
            loaded.append((job, active.tasks, spec, attempt))
    return waiting, loaded


def waiting_since(
    conn: Connection, waiting: Iterable[JobRow], started: Iterable[JobRow], not_before_ms: int
) -> dict[tuple[str, str], int]:
    """Since when whoever waits has got nothing, by virtual cluster and user."""
    since: dict[tuple[str, str], int] = {}
    latest = jobs.latest_starts(conn, not_before_ms)
    for job in waiting:
        place = job.vc, job.username
        since[place] = min(since.get(place, job.submission_ms), job.submission_ms)
        if job.attempt:
            launched = [attempt.launched_ms or 0 for attempt in jobs.attempts_of(conn, job.id)]
            latest[place] = max([latest.get(place, 0), *launched])
    for job in started:
        place = job.vc, job.username
        latest[place] = max(latest.get(place, 0), job.launched_ms or 0)
    return {place: max(began, latest.get(place, 0)) for place, began in since.items()}


def read_some(
    conn: Connection, unknown: list[int], known: list[int]
) -> tuple[list[tuple[JobRow, JobSpecRow]], dict[int, str]]:
    fresh = []
    for job_id in unknown:
        row = jobs.get_job_by_id(conn, job_id)
        spec = jobs.job_spec(conn, job_id)
        if row is not None and spec is not None and row.sub_state != COMPLETED:
            fresh.append((row, spec))
    return fresh, {
        job_id: row.execution_type
        for job_id in known
        if (row := jobs.get_job_by_id(conn, job_id)) is not None
    }
