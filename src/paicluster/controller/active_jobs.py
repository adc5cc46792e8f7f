"""Working set of the controller: active jobs, loaded from the database.

All of them are loaded at a start and after a failed reconcile, others one by one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection

from paicluster.controller import admission
from paicluster.controller.allocation_records import Allocations
from paicluster.controller.attempt_tasks import AttemptTasks
from paicluster.controller.job_record import COMPLETED, PENDING, JobRecord
from paicluster.controller.starvation import STARVATION_S
from paicluster.engines.interface import FreeNodes
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.pending_jobs import PendingJobs
from paicluster.scheduler.plan import AdmissionPool
from paicluster.scheduler.preemption import PreemptibleJob
from paicluster.scheduler.resource_requests import NO_MINIMUM, Resources
from paicluster.services.work_journal import Step, WorkJournal
from paicluster.store import Store, jobs
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow, TaskRow
from paiprotocol.errors import PaiError
from paiprotocol.jobs import read_job
from paiprotocol.jobs.images import NO_IMAGE
from paiprotocol.jobs.states import ExecutionType

log = logging.getLogger("paicluster.controller")

# Up to this many jobs are read on the event loop itself: a thread costs more than the query.
INLINE_READ_LIMIT = 4

Loaded = tuple[JobRow, tuple[TaskRow, ...], JobSpecRow, AttemptRow | None]


class ActiveJobs:
    """Jobs that have started or are about to, the job of each task, and the allocations of the tasks.

    ``on_backoff_over(job_id)`` is called when a task of the job may be started again.
    """

    def __init__(
        self,
        store: Store,
        engines: EngineRouter,
        on_backoff_over: Callable[[int], None],
        work_journal: WorkJournal,
        minimum: Resources = NO_MINIMUM,
    ):
        """``minimum``: what each task holds at least."""
        self._store = store
        self._minimum = minimum
        self._engines = engines
        self._on_backoff_over = on_backoff_over
        self._work_journal = work_journal
        self.records: dict[int, JobRecord] = {}
        self.job_of: dict[str, int] = {}
        self.allocations = Allocations(engines.admitted)
        # Tasks this controller has asked the engine to stop; a new controller asks again.
        self.stop_sent: set[str] = set()
        self.backoffs: dict[str, asyncio.TimerHandle] = {}

    async def clear(self) -> None:
        """Forget everything, once no launch is in progress."""
        self.cancel_backoffs()
        launches = [r.launching for r in self.records.values() if r.launching is not None]
        await asyncio.gather(*launches, return_exceptions=True)
        for state in (self.records, self.job_of, self.backoffs, self.allocations, self.stop_sent):
            state.clear()

    def cancel_backoffs(self) -> None:
        for timer in self.backoffs.values():
            timer.cancel()

    async def load_all(self) -> list[JobRow]:
        """Load every unfinished job; those that are only pending are returned instead."""
        pending, loaded = await self._store.read(read_active)
        for row, tasks, spec, attempt in loaded:
            self._load(row, tasks, spec, attempt)
        return pending

    async def refresh(self, job_ids: Iterable[int]) -> list[JobRecord]:
        """The unfinished ones of these jobs: unknown ones are loaded, known ones get their execution type."""
        ids = list(job_ids)
        unknown = [job_id for job_id in ids if job_id not in self.records]
        known = [job_id for job_id in ids if job_id in self.records]
        if len(ids) <= INLINE_READ_LIMIT:
            rows, execution_types = self._store.read_inline(lambda conn: read_some(conn, unknown, known))
        else:
            rows, execution_types = await self._store.read(lambda conn: read_some(conn, unknown, known))
        for row, spec in rows:
            self._load(row, [], spec, None)
        for job_id, execution_type in execution_types.items():
            record = self.records[job_id]
            record.row = replace(record.row, execution_type=execution_type)
        return [self.records[job_id] for job_id in ids if job_id in self.records]

    async def pending_since(self, pending: Iterable[JobRow]) -> dict[tuple[str, str], float]:
        """Since when each user waits, by the monotonic clock, for :meth:`StarvationGuard.resume`."""
        started = [record.row for record in self.records.values()]
        now_ms, now = int(time.time() * 1000), time.monotonic()
        since = await self._store.read(
            lambda conn: pending_since(conn, pending, started, now_ms - int(STARVATION_S * 1000))
        )
        return {vc_user: now - max(0, now_ms - since_ms) / 1000 for vc_user, since_ms in since.items()}

    def is_delegated(self, record: JobRecord) -> bool:
        """Whether an external scheduler places its tasks."""
        return record.row.vc in self._engines.self_scheduling

    def admission_pool(
        self, vcs: frozenset[str], free: FreeNodes, is_excluded: Callable[[int], bool]
    ) -> AdmissionPool:
        """Nodes that an external scheduler fills, with what is left of them by what we have admitted."""
        nodes = admission.free_capacity(free, self.allocations.admitted_to(vcs))
        # None that a free one has.
        numbers = itertools.count(-1, -1)
        jobs_ = [
            PreemptibleJob(
                record.row.id,
                admission.held_on(
                    {node.name for node in nodes},
                    [(task.node or "", record.resources_of(task.role)) for task in record.live],
                    numbers,
                ),
                record.preempting,
            )
            for record in self._preemptible(is_excluded)
            if record.row.vc in vcs
        ]
        return AdmissionPool(vcs, nodes, jobs_)

    def preemptible_jobs(self, is_excluded: Callable[[int], bool]) -> list[PreemptibleJob]:
        """Jobs on our nodes that can be preempted with their allocations, latest started first."""
        preemptible = [record for record in self._preemptible(is_excluded) if not self.is_delegated(record)]
        by_job: dict[int, list[tuple[str, Resources, tuple[int, ...]]]] = {}
        if preemptible:
            for entry in self.allocations.all():
                by_job.setdefault(entry.job_id, []).append((entry.node, entry.resources, entry.gpus))
        return [
            PreemptibleJob(record.row.id, tuple(by_job.get(record.row.id, ())), record.preempting)
            for record in preemptible
        ]

    def _preemptible(self, is_excluded: Callable[[int], bool]) -> list[JobRecord]:
        records = [
            record
            for record in self.records.values()
            if record.preemptible and record.live and not is_excluded(record.row.id)
        ]
        records.sort(key=lambda record: record.row.launched_ms or int(time.time() * 1000), reverse=True)
        return records

    def partly_started(self, pending: PendingJobs) -> dict[int, tuple[tuple[tuple[int, ...], ...], int]]:
        """Jobs without a gang that have pending tasks: their indexes by role, and how many may start now."""
        jobs_ = {}
        for job_id, record in self.records.items():
            if not record.job.gang and job_id in pending:
                limit = record.request().resources.limit
                startable = limit - len(record.live) if limit else 1 << 30
                jobs_[job_id] = (record.unstarted(), startable)
        return jobs_

    def back_off(self, record: JobRecord, task: TaskRow, elapsed_s: float) -> None:
        """Delay the retry of a task, if a part of its retry delay has not elapsed yet."""
        delay_s = record.retry_delay_s(task)
        # The clock may have been set back since it ended.
        left_s = min(delay_s, delay_s - elapsed_s)
        if left_s > 0:
            record.backing_off.add(task.uid)
            loop = asyncio.get_running_loop()
            self.backoffs[task.uid] = loop.call_later(left_s, self.backoff_over, record, task.uid)

    def backoff_over(self, record: JobRecord, uid: str) -> None:
        self.backoffs.pop(uid, None)
        record.backing_off.discard(uid)
        if self.records.get(record.row.id) is record:
            self._on_backoff_over(record.row.id)

    def forget_tasks(self, record: JobRecord) -> None:
        """Release everything its tasks hold in memory."""
        for uid in record.tasks:
            self.job_of.pop(uid, None)
            self.stop_sent.discard(uid)
            self.allocations.free(uid)

    def remove(self, record: JobRecord) -> None:
        self.forget_tasks(record)
        del self.records[record.row.id]

    def _load(
        self, row: JobRow, tasks: Iterable[TaskRow], spec: JobSpecRow, attempt: AttemptRow | None
    ) -> None:
        condemned = self._work_journal.verdict(row.id)
        try:
            if condemned:
                # Whatever is in it is not read again.
                job = read_job(_stand_in(row, tasks), stored=True)
            else:
                with self._work_journal.short_work(row.id, Step.LOAD):
                    job = read_job(spec.job, stored=True)
        except PaiError as error:
            # One unreadable job must not keep all others from running.
            log.error("Cannot read the stored job %s; leaving it unchanged: %s", row.framework, error)  # noqa: TRY400
            return
        except Exception:
            log.exception("Cannot read the stored job %s; leaving it unchanged.", row.framework)
            return
        record = JobRecord(row, job, spec.sealed, attempt, self._minimum, condemned=condemned)
        # The latest attempt of each task; they come oldest first.
        latest = {(task.role, task.task_index): task for task in tasks}
        record.tasks = AttemptTasks(job.task_roles, latest.values())
        self.records[row.id] = record
        for task in record.tasks.values():
            self.job_of[task.uid] = row.id
            if task.ended:
                self.back_off(record, task, time.time() - (task.completed_ms or 0) / 1000)
            elif self.is_delegated(record):
                self.allocations.allocate_delegated(task.uid, record.owner(), record.resources_of(task.role))
            else:
                self.allocations.allocate(task, record.owner())


def _stand_in(row: JobRow, tasks: Iterable[TaskRow]) -> str:
    """Stand-in for a stored job that cannot be parsed: it has the same tasks, and can only be ended."""
    instances: dict[str, int] = {}
    for task in tasks:
        instances[task.role] = max(instances.get(task.role, 0), task.task_index + 1)
    roles = {
        name: {
            "instances": count,
            "dockerImage": "none",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 1, "gpu": 0},
            "commands": ["false"],
        }
        for name, count in (instances or {"main": 1}).items()
    }
    images = [{"name": "none", "type": "dockerimage", "uri": NO_IMAGE}]
    return json.dumps(
        {
            "protocolVersion": 2,
            "name": row.name,
            "type": "job",
            "prerequisites": images,
            "taskRoles": roles,
        }
    )


def read_active(conn: Connection) -> tuple[list[JobRow], list[Loaded]]:
    """Unfinished jobs: rows of those that are only pending, and everything of the others."""
    pending: list[JobRow] = []
    loaded: list[Loaded] = []
    for active in jobs.active_jobs(conn):
        job = active.job
        if job.sub_state == PENDING and job.execution_type == "START":
            pending.append(job)
            continue
        try:
            spec = jobs.job_spec(conn, job.id)
            attempt = next((a for a in jobs.attempts_of(conn, job.id) if a.attempt == job.attempt), None)
        except sqlite3.OperationalError as error:  # a text that is not UTF-8
            log.error("Cannot read the stored job %s; leaving it unchanged: %s", job.framework, error)  # noqa: TRY400
            continue
        if spec is not None:
            loaded.append((job, active.tasks, spec, attempt))
    return pending, loaded


def pending_since(
    conn: Connection, pending: Iterable[JobRow], started: Iterable[JobRow], not_before_ms: int
) -> dict[tuple[str, str], int]:
    """Since when no job of a waiting user has started, by (virtual cluster, user)."""
    since: dict[tuple[str, str], int] = {}
    latest = jobs.latest_starts(conn, not_before_ms)
    for job in pending:
        vc_user = job.vc, job.username
        since[vc_user] = min(since.get(vc_user, job.submission_ms), job.submission_ms)
        if job.attempt:
            launched = [attempt.launched_ms or 0 for attempt in jobs.attempts_of(conn, job.id)]
            latest[vc_user] = max([latest.get(vc_user, 0), *launched])
    for job in started:
        vc_user = job.vc, job.username
        latest[vc_user] = max(latest.get(vc_user, 0), job.launched_ms or 0)
    return {vc_user: max(since_ms, latest.get(vc_user, 0)) for vc_user, since_ms in since.items()}


def read_some(
    conn: Connection, unknown: list[int], known: list[int]
) -> tuple[list[tuple[JobRow, JobSpecRow]], dict[int, ExecutionType]]:
    """Rows of unfinished jobs among ``unknown``, and execution types of ``known``."""
    rows = []
    for job_id in unknown:
        row = jobs.get_job_by_id(conn, job_id)
        spec = jobs.job_spec(conn, job_id)
        if row is not None and spec is not None and row.sub_state != COMPLETED:
            rows.append((row, spec))
    return rows, {
        job_id: row.execution_type
        for job_id in known
        if (row := jobs.get_job_by_id(conn, job_id)) is not None
    }
