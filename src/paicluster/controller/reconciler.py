"""The reconcile loop: wake, observe, decide, write, act."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from paicluster.controller import transitions
from paicluster.controller.active_jobs import INLINE_READ_LIMIT, ActiveJobs
from paicluster.controller.job_record import PENDING, PREPARING, RUNNING, JobRecord
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.launcher import Launcher
from paicluster.controller.pending_queue import PendingQueue, check_dependencies
from paicluster.controller.pending_reasons import PendingReasons
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.controller.recovery import Recovery
from paicluster.controller.starvation import StarvationGuard
from paicluster.controller.stop_journal import StopJournal
from paicluster.controller.task_observer import Observer
from paicluster.controller.timings import DEFAULT_TIMINGS, Timings
from paicluster.controller.transitions import NextQueue, next_queue
from paicluster.controller.wakeups import Wakeups
from paicluster.engines.interface import Engine, Node
from paicluster.engines.router import EngineRouter
from paicluster.metrics.usage import MeasuredTask
from paicluster.scheduler.plan import AdmissionPool, Preempt, Snapshot, Start, plan
from paicluster.scheduler.quota_limits import HeldResources, QuotaLimit
from paicluster.scheduler.resource_requests import NO_MINIMUM, Resources
from paicluster.services.work_journal import WorkJournal
from paicluster.store import Store, jobs
from paicluster.store.change_feed import Requests
from paicluster.store.job_failures import cause_of, causes_of
from paicluster.store.rows import PendingJob
from paicluster.store.sqlite import UnreadableRow
from paiprotocol.errors import PaiError, StoreError
from paiprotocol.jobs.states import job_state

log = logging.getLogger("paicluster.controller")

T = TypeVar("T")

_READ_BATCH = 500
# Until a stop is repeated that a full disk prevented.
_STOP_RETRY_INTERVAL_S = 1.0


class Controller:
    """Moves every job towards its end. Wake-ups collect the work, recovery repairs after a failure."""

    def __init__(
        self,
        store: Store,
        engine: Engine | EngineRouter,
        settings: LaunchSettings,
        *,
        quotas: Mapping[str, Resources] | None = None,
        max_capacities: Mapping[str, Resources] | None = None,
        user_quotas: Mapping[str, tuple[QuotaLimit, ...]] | None = None,
        minimum: Resources = NO_MINIMUM,
        grace_s: float = 10.0,
        stop_journal: StopJournal | None = None,
        work_journal: WorkJournal | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ):
        self._store = store
        # Opened by its owner; without one nothing is journaled.
        work_journal = work_journal or WorkJournal()
        self._engines = EngineRouter.of(engine)
        self._grace_s = grace_s
        self._timings = timings
        self._active = ActiveJobs(
            store, self._engines, lambda job_id: self._wakeups.request(job_id), work_journal, minimum
        )
        self._queue = PendingQueue()
        self._wakeups = Wakeups(self._active, self._queue, sweep_interval_s=timings.sweep_interval_s)
        self._reasons = PendingReasons(self._wakeups.wake, report_after_s=timings.report_reason_after_s)
        self._starvation = StarvationGuard()
        self._recovery = Recovery(
            store,
            self._engines,
            self._active,
            self._queue,
            self._wakeups,
            self._reasons,
            self._starvation,
            stop_journal or StopJournal(),
            work_journal,
            grace_s=grace_s,
            timings=timings,
        )
        self._quarantine = self._recovery.quarantine
        self._observer = Observer(self._engines, self._active)
        self._launcher = Launcher(
            store,
            self._engines,
            settings,
            self._wakeups.hint,
            work_journal,
            relaunch_backoff=timings.relaunch_backoff,
        )
        self._nodes = {node.name: node for node in self._engines.scheduled_nodes()}
        self._quotas = (
            quotas if quotas is not None else {"default": total_resources(self._engines.scheduled_nodes())}
        )
        self._max_capacities = max_capacities if max_capacities is not None else {}
        self._user_quotas = user_quotas if user_quotas is not None else {}
        # The job that a reconcile is at while it handles one after another; 0: none.
        self._current_job = 0
        self._on_tasks_ended: Callable[[list[tuple[int, str]]], None] = lambda ended: None
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._reconcile_started: float | None = None
        self.idle_since = time.monotonic()

    # -- facade --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load every unfinished job and start reconciling."""
        self._recovery.stop_journal.open()
        await self._engines.start(self._wakeups.hint, self._wakeups.notice)
        self._unsubscribe = self._store.changes.subscribe_requests(self._on_requests)
        self._engines.on_capacity_change(self._wakeups.requeue_unschedulable)
        await self._recovery.report_suspects()
        await self._recovery.load_all()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop reconciling. Tasks keep running; the next controller adopts them."""
        self._unsubscribe()
        self._launcher.cancel_pauses()
        self._wakeups.close()
        self._active.cancel_backoffs()
        self._reasons.close()
        self._quarantine.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._engines.cancel_launches()
        launches = [r.launching for r in self._active.records.values() if r.launching is not None]
        await asyncio.gather(*launches, return_exceptions=True)
        await self._engines.close()

    @property
    def busy(self) -> bool:
        """Whether any job is unfinished."""
        return bool(self._active.records or self._queue or self._wakeups.submitted or self._quarantine)

    def reconcile_age(self) -> float:
        """Seconds the current reconcile has been running: a stuck controller shows here."""
        started = self._reconcile_started
        return 0.0 if started is None else time.monotonic() - started

    def degraded_reason(self, framework: str = "") -> str:
        """Why nothing can be written now and what to do, or why this job is quarantined."""
        return self._recovery.degraded_reason(framework)

    def quarantined(self) -> int:
        """Number of quarantined jobs."""
        return len(self._quarantine)

    def pending_stops(self) -> int:
        """Number of stopped jobs whose stop is not yet in the database."""
        return len(self._recovery.stop_journal.jobs)

    def running(self) -> Mapping[str, HeldResources]:
        """Tasks of each user and what they hold."""
        return self._active.allocations.running

    def running_tasks(self) -> list[MeasuredTask]:
        """All tasks that run now."""
        return [
            MeasuredTask(
                task.uid,
                record.row.id,
                record.row.username,
                record.row.name,
                record.row.vc,
                task.role,
                task.task_index,
                task.node or "",
                task.launched_ms or task.created_ms or 0,
                task.cpu,
                task.memory_mb,
                tuple(json.loads(task.gpus or "[]")),
            )
            for record in self._active.records.values()
            for task in record.tasks.live.values()
            if task.sub_state == RUNNING
        ]

    def running_uids(self) -> list[tuple[int, str]]:
        """Job and uid of all tasks that run now."""
        return [
            (record.row.id, uid)
            for record in self._active.records.values()
            for uid, task in record.tasks.live.items()
            if task.sub_state == RUNNING
        ]

    def on_tasks_ended(self, callback: Callable[[list[tuple[int, str]]], None]) -> None:
        """Call ``callback`` with job and uid of task attempts whose end was committed."""
        self._on_tasks_ended = callback

    async def stop_without_store(self, job_id: int) -> None:
        await self._recovery.stop_without_store(job_id)

    def requeue_unschedulable(self) -> None:
        self._wakeups.requeue_unschedulable()

    def _on_requests(self, requests: Requests) -> None:
        for job_id, new_job in requests.items():
            if new_job is None:
                self._quarantine.retry_now(job_id)
        self._wakeups.add_requests(requests)

    # -- run -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        # Reconciles that failed one after the other.
        failures = 0
        # Whether the last reconcile failed for an unknown reason: the next one then commits job by job.
        suspicious = False
        while True:
            await self._wakeups.wait()
            self._reconcile_started = time.monotonic()
            retried = self._quarantine.retrying()
            isolated = suspicious or bool(retried)
            try:
                await self._reconcile(isolated=isolated)
                failures = 0
                suspicious = False
                self._quarantine.release(retried)
                self._recovery.settle_suspects()
                self._recovery.set_store_error(None)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # The state in memory may be ahead of the database now: drop it and load what was committed.
                suspicious = not isinstance(error, StoreError) or isinstance(error, UnreadableRow)
                failed_job = self._current_job if isolated and suspicious else 0
                if isinstance(error, PaiError):
                    log.warning("Reconcile failed; reloading state: %s", error)
                elif not failed_job:  # else the quarantine logs it together with the job
                    log.exception("Reconcile failed; reloading state.")
                self._recovery.set_store_error(error)
                await asyncio.sleep(self._timings.reload_backoff.delay_s(failures))
                failures = 0 if failed_job else failures + 1
                await self._recovery.reload(failed_job, error)
            finally:
                self._reconcile_started = None

    # -- reconcile -----------------------------------------------------------------------------

    async def _reconcile(self, *, isolated: bool) -> None:
        """``isolated``: each job in a commit of its own, so that a failure can be attributed to one job."""
        wakeups = self._wakeups
        requests, wakeups.requests = wakeups.requests - self._quarantine.excluded, set()
        hints, wakeups.hints = {uid for uid in wakeups.hints if self._is_reconciled(uid)}, set()
        touched: dict[int, JobRecord] = {}
        changes = Changes()
        now_ms = _now_ms()
        self._current_job = 0
        requests |= await self._write_journaled_stops()
        if wakeups.submitted:
            await self._enqueue_new()
        if requests:
            for record in await self._active.refresh(requests):
                if record.row.id in self._recovery.stop_journal.jobs:  # journaled during this reconcile
                    record.row = replace(record.row, execution_type="STOP")
                touched[record.row.id] = record
        self._record_notices(changes)
        for _, uids in self._each(self._by_job(hints).items() if isolated else [(0, hints)]):
            if uids:
                await self._observer.observe(uids, touched, changes, now_ms)
            await asyncio.sleep(0)  # observing few tasks never yields to the event loop by itself
        for _, record in self._each(touched.items()):
            transitions.advance(record, changes, now_ms)
            self._update_queues(record, changes, now_ms)
        if isolated:
            # Before freed resources are given to others: if this commit failed afterwards, the same resources
            # would be allocated twice.
            await self._apply(changes, now_ms, isolated=True)
            changes = Changes()
        while self._queue.to_recheck:
            # In the same commit as the end of the job they depend on: no client then sees a job pending on a
            # finished one.
            await self._recheck_dependencies(changes, now_ms)
        await self._schedule(changes, now_ms)
        await self._apply(changes, now_ms, isolated=isolated)
        wakeups.arm_sweep()
        if self._queue.to_recheck:
            wakeups.wake()
        if not self.busy:
            self.idle_since = time.monotonic()

    async def _write_journaled_stops(self) -> set[int]:
        """Write stops that were journaled while the database could not be written; the jobs stopped."""
        journal = self._recovery.stop_journal
        stopped = set()
        for job_id, _ in self._each([(job_id, None) for job_id in journal.jobs - self._quarantine.excluded]):
            await self._store.write(partial(jobs.stop, job_id=job_id))
            await journal.discard(job_id)
            stopped.add(job_id)
        return stopped

    def _record_notices(self, changes: Changes) -> None:
        notices, self._wakeups.notices = self._wakeups.notices, []
        for uid, notice in notices:
            if self._is_reconciled(uid):
                job_id = self._active.job_of[uid]
                event = Event(job_id, notice.type, notice.reason, notice.message, pending=notice.pending)
                changes.events.append(event)

    def _is_reconciled(self, uid: str) -> bool:
        """Whether it is a task of an active job that is not quarantined."""
        job_id = self._active.job_of.get(uid)
        return job_id is not None and not self._quarantine.excludes(job_id)

    def _by_job(self, uids: Iterable[str]) -> dict[int, set[str]]:
        grouped: dict[int, set[str]] = {}
        for uid in uids:
            grouped.setdefault(self._active.job_of[uid], set()).add(uid)
        return grouped

    def _each(self, items: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Iterate over (job, item) and keep track of the job, so that a failure can be attributed to it."""
        for job_id, item in items:
            self._current_job = job_id
            yield job_id, item
        self._current_job = 0

    # -- apply ---------------------------------------------------------------------------------

    async def _apply(self, changes: Changes, now_ms: int, *, isolated: bool) -> None:
        parts = changes.split_by_job(self._active.job_of) if isolated else {0: changes}
        loop = asyncio.get_running_loop()
        written: dict[int, asyncio.Future[bool]] = {number: loop.create_future() for number in parts}
        try:
            # Before anything is awaited: a launch in progress would take tasks of a later part for committed.
            for number, part in parts.items():
                for job_id in part.launch:
                    self._active.records[job_id].written = written[number]
            for number, part in self._each(parts.items()):
                await self._write_and_act(part, now_ms, written[number])
        finally:
            for future in written.values():
                if not future.done():
                    future.set_result(False)

    async def _write_and_act(self, changes: Changes, now_ms: int, written: asyncio.Future[bool]) -> None:
        for job_id in changes.launch:
            # Prepared while the intent is being committed, started once it is on disk.
            self._launcher.launch(self._active.records[job_id])
        forgotten: list[str] = []
        if changes:
            forgotten = await self._store.write(lambda conn: changes.write(conn, now_ms))
        written.set_result(True)
        if ended := [
            (task["job_id"], uid) for uid, task in changes.task_columns.items() if "exit_code" in task
        ]:
            self._on_tasks_ended(ended)
        if forgotten:
            await self._engines.remove(forgotten)
        if changes.stop:
            self._active.stop_sent.update(changes.stop)
            await self._stop(changes.stop)

    async def _stop(self, uids: Sequence[str]) -> None:
        """Ask tasks to stop; on a full disk again in a moment. The state in memory is right nevertheless."""
        try:
            await self._engines.stop(uids, self._grace_s)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.warning("Tasks cannot be asked to stop, and will be asked again: %s", error)
            self._active.stop_sent.difference_update(uids)
            loop = asyncio.get_running_loop()
            for uid in uids:
                loop.call_later(_STOP_RETRY_INTERVAL_S, self._wakeups.hint, uid)

    # -- queues --------------------------------------------------------------------------------

    async def _enqueue_new(self) -> None:
        """Enqueue new jobs as the values the scheduler compares."""
        submitted = {
            job_id: job
            for job_id, job in self._wakeups.submitted.items()
            if not self._quarantine.excludes(job_id)
        }
        self._wakeups.submitted = {}
        if len(submitted) <= INLINE_READ_LIMIT and not len(self._queue.pending):
            # They most likely start at once: load them whole now instead of reading them twice.
            records = await self._active.refresh(sorted(submitted))
            self._enqueue([record.pending_job() for _, record in self._each((r.row.id, r) for r in records)])
            return
        self._enqueue(filter(None, submitted.values()))
        unknown = sorted(job_id for job_id, job in submitted.items() if job is None)
        for start in range(0, len(unknown), _READ_BATCH):
            part = unknown[start : start + _READ_BATCH]
            self._enqueue(await self._store.read(partial(jobs.pending_jobs, job_ids=part)))

    def _enqueue(self, new_jobs: Iterable[PendingJob]) -> None:
        for _, job in self._each((job.id, job) for job in new_jobs):
            self._queue.add(job)

    async def _recheck_dependencies(self, changes: Changes, now_ms: int) -> None:
        """Release jobs whose dependencies are satisfied; fail those whose dependencies never will be."""
        dependencies = self._queue.take_to_recheck()
        names = sorted({dependency.framework for of_job in dependencies.values() for dependency in of_job})
        states = await self._store.read(lambda conn: jobs.states_of(conn, names))
        states.update(changes.ended)
        failed = [name for name in names if states.get(name) == "FAILED" and name not in changes.causes]
        causes = await self._store.read(lambda conn: causes_of(conn, failed)) if failed else {}
        causes.update(changes.causes)
        for job_id, of_job in self._each(dependencies.items()):
            status = check_dependencies(of_job, states, causes)
            if status.broken:
                for record in await self._active.refresh([job_id]):
                    transitions.fail_unstarted(record, status.broken, changes, now_ms)
                    self._update_queues(record, changes, now_ms)
            elif status.waits_for:
                others = ", ".join(status.waits_for)
                self._reasons.report(job_id, f"The job waits for {others} to finish.", changes)
            else:
                self._queue.release(job_id)

    def _update_queues(self, record: JobRecord, changes: Changes, now_ms: int) -> None:
        """Move the job to the queue that its state asks for."""
        job_id = record.row.id
        queue = next_queue(record, now_ms)
        if queue is NextQueue.NEXT_ATTEMPT:
            self._active.forget_tasks(record)
            transitions.begin_next_attempt(record, changes)
            queue = next_queue(record, now_ms)
        elif queue is NextQueue.REQUEUE:
            self._active.forget_tasks(record)
            transitions.requeue(record, changes)
            queue = next_queue(record, now_ms)
        elif queue is NextQueue.RETRY_DELAY:
            self._wakeups.arm_retry(job_id, transitions.retry_wait_ms(record, now_ms) / 1000)
        if queue is NextQueue.LAUNCH_BACKOFF:
            self._defer_launch(record)
        elif queue is NextQueue.PENDING:
            self._queue.add_started(record.queued_job())
        else:
            self._queue.remove(job_id)
        if queue is NextQueue.FINISHED:
            self._wakeups.cancel_retry(job_id)
            self._reasons.forget(job_id)
            state = job_state(record.row.sub_state, record.row.exit_code)
            changes.ended[record.row.framework] = state
            if state == "FAILED":
                changes.causes[record.row.framework] = cause_of(record.attempt)
            self._queue.recheck_dependents(record.row.framework)
            self._active.remove(record)

    def _defer_launch(self, record: JobRecord) -> None:
        """Retry a launch later whose error may be transient; until then the job holds no resources."""
        job_id = record.row.id
        self._queue.mark_unschedulable(job_id)
        self._wakeups.arm_retry(job_id, self._timings.launch_backoff.delay_s(record.launch_failures - 1))

    # -- schedule ------------------------------------------------------------------------------

    async def _schedule(self, changes: Changes, now_ms: int) -> None:
        """Run the scheduler over all pending jobs and load the ones it starts."""
        if not len(self._queue.pending):
            self._starvation.clear()
            return
        decisions = plan(self._snapshot(), self._queue.pending)
        records = self._active.records
        unknown = [d.job_id for d in decisions if isinstance(d, Start) and d.job_id not in records]
        if unknown:
            await self._active.refresh(unknown)
        preemptors = {d.preemptor for d in decisions if isinstance(d, Preempt)}
        names = await self._store.read(lambda conn: jobs.names_of(conn, preemptors)) if preemptors else {}
        for _, decision in self._each((decision.job_id, decision) for decision in decisions):
            if isinstance(decision, Start):
                self._start(decision, changes, now_ms)
            elif isinstance(decision, Preempt):
                preemptor = names.get(decision.preemptor, "another job")
                transitions.preempt(records[decision.job_id], preemptor, changes)
            else:
                if decision.unschedulable or self._is_reason_due(decision.job_id):
                    self._reasons.report(decision.job_id, decision.reason, changes)
                if decision.unschedulable:
                    self._queue.mark_unschedulable(decision.job_id)

    def _is_reason_due(self, job_id: int) -> bool:
        """Whether to report why a job is pending; not while some of its tasks run."""
        record = self._active.records.get(job_id)
        return (record is None or not record.live) and self._reasons.is_due(job_id)

    def _snapshot(self) -> Snapshot:
        allocations = self._active.allocations
        admitted, pools = self._admission()
        return Snapshot(
            nodes=allocations.node_capacity(list(self._nodes.values())),
            quotas=self._quotas,
            used=allocations.by_vc,
            max_capacities=self._max_capacities,
            used_by_user=allocations.by_user,
            user_quotas=self._user_quotas,
            running=allocations.running,
            starved=self._starvation.starved(self._queue.pending.waiting_users(), time.monotonic()),
            preemptible=self._active.preemptible_jobs(self._quarantine.excludes),
            partial=self._active.partly_started(self._queue.pending),
            self_scheduling=self._engines.self_scheduling - admitted,
            admitted=admitted,
            pools=pools,
        )

    def _admission(self) -> tuple[frozenset[str], list[AdmissionPool]]:
        """Virtual clusters whose jobs start when we say so, on nodes that another scheduler fills."""
        admitted, pools = self._engines.admitted, []
        for vcs, free in self._engines.admission_pools() if admitted else ():
            if free is None:
                admitted -= vcs
            else:
                # One without a quota: the server is still starting.
                known = frozenset(vc for vc in vcs if vc in self._quotas)
                pools.append(self._active.admission_pool(known, free, self._quarantine.excludes))
        return admitted, pools

    def _start(self, decision: Start, changes: Changes, now_ms: int) -> None:
        record = self._active.records.get(decision.job_id)
        self._queue.remove(decision.job_id)
        if record is None:
            return  # deleted meanwhile
        transitions.advance(record, changes, now_ms)
        if record.row.sub_state in (PENDING, PREPARING, RUNNING):
            if record.row.sub_state == PENDING and record.row.attempt == 0 and not record.launch_failures:
                changes.events += self._launcher.start_warnings(record)
            placed = transitions.place(
                record,
                decision.placements,
                self._nodes,
                self._active.allocations,
                self._engines.ports_free,
                changes,
                now_ms,
            )
            for task in placed:
                self._active.job_of[task.uid] = decision.job_id
            self._reasons.started(decision.job_id, changes)
            self._starvation.started(record.row.vc, record.row.username)
        self._update_queues(record, changes, now_ms)


def total_resources(nodes: Sequence[Node]) -> Resources:
    """Sum of all resources of the nodes."""
    total = Resources()
    for node in nodes:
        total = total.plus(Resources(node.cpu, node.memory_mb, len(node.gpus)))
    return total


def _now_ms() -> int:
    return int(time.time() * 1000)
