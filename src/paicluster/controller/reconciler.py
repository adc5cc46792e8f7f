"""The loop: wake, look, decide, write, act."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from openpaisdk.errors import PaiError, StoreError
from openpaisdk.protocol.states import job_state
from paicluster.controller import transitions
from paicluster.controller.active_jobs import FEW, ActiveJobs
from paicluster.controller.changes import Changes, Event
from paicluster.controller.job_record import (
    ATTEMPT_COMPLETED,
    COMPLETED,
    PENDING,
    PREPARING,
    RUNNING,
    JobRecord,
)
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.launcher import Launcher
from paicluster.controller.pending_queue import PendingQueue, check_dependencies
from paicluster.controller.pending_reasons import PendingReasons
from paicluster.controller.quarantine import Quarantine
from paicluster.controller.starvation import StarvationGuard
from paicluster.controller.stop_journal import StopJournal
from paicluster.controller.task_observer import Observer
from paicluster.engines.interface import Engine, Node, Notice
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.plan import Preempt, Snapshot, Start, plan
from paicluster.scheduler.resource_requests import Resources
from paicluster.store import Store, jobs
from paicluster.store.change_feed import Requests
from paicluster.store.rows import PendingJob

log = logging.getLogger("paicluster.controller")

T = TypeVar("T")

# A hint that was lost is made up for this often, while tasks run.
_SWEEP_S = 30.0
_READ_AT_ONCE = 500
_NEWCOMERS_S = 0.02
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
# How often it is tried whether anything can be written again.
_TRY_OUT_S = 1.0
# How long a job that could not be launched waits for the next try: doubled each time.
_FIRST_PUT_OFF_S = 1.0
_LONGEST_PUT_OFF_S = 60.0


class Controller:
    def __init__(
        self,
        store: Store,
        engine: Engine | EngineRouter,
        settings: LaunchSettings,
        *,
        shares: Mapping[str, Resources] | None = None,
        limits: Mapping[str, Resources] | None = None,
        grace_s: float = 10.0,
        unwritten: StopJournal | None = None,
    ):
        self._store = store
        self._engines = EngineRouter.of(engine)
        self._grace_s = grace_s
        self._in_hand = ActiveJobs(store, self._engines, self._look_at)
        self._records = self._in_hand.records
        self._job_of = self._in_hand.job_of
        self._ledger = self._in_hand.ledger
        self._queue = PendingQueue()
        # Newcomers; what is not known of one is read when it is taken in.
        self._submitted: Requests = {}
        self._unwritten = unwritten or StopJournal()
        # Jobs whose conditions may have changed.
        self._recheck: set[int] = set()
        # Tasks this controller has told the engine to stop; a new controller tells it again.
        self._stop_sent: set[str] = set()
        self._observer = Observer(self._engines, self._in_hand, self._stop_sent)
        self._launcher = Launcher(store, self._engines, settings, self._hint)
        self._nodes = {node.name: node for node in self._engines.scheduled_nodes()}
        self._shares = (
            shares if shares is not None else {"default": total_resources(self._engines.scheduled_nodes())}
        )
        self._limits = limits if limits is not None else {}
        self._requests: set[int] = set()
        self._hints: set[str] = set()
        # What engines said about attempts, not yet written down.
        self._said: list[tuple[str, Notice]] = []
        self._wake = asyncio.Event()
        self._reasons = PendingReasons(self._wake.set)
        self._patience = StarvationGuard()
        self._aside = Quarantine(self._try_again, store.changes.publish)
        # The job that a pass is at, while it takes one after another.
        self._at = 0
        self._task: asyncio.Task[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self._pass_began: float | None = None
        self._trouble: StoreError | None = None
        self.idle_since = time.monotonic()

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up every job that is not over, and go on from there."""
        self._unwritten.open()
        await self._engines.start(self._hint, self._say)
        self._unsubscribe = self._store.changes.subscribe_requests(self._request)
        await self._load_all()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Let go. Tasks run on; the next controller takes them up."""
        self._unsubscribe()
        self._launcher.cancel_pauses()
        waits = (
            *self._timers.values(),
            *self._in_hand.rests.values(),
            *filter(None, (self._sweep, self._later)),
        )
        for timer in waits:
            timer.cancel()
        self._reasons.close()
        self._aside.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._engines.cancel_launches()
        launches = [r.launching for r in self._records.values() if r.launching is not None]
        await asyncio.gather(*launches, return_exceptions=True)
        await self._engines.close()

    def pass_age(self) -> float:
        """Seconds the current pass has been under way: a stuck controller shows here."""
        began = self._pass_began
        return 0.0 if began is None else time.monotonic() - began

    def degraded_reason(self, framework: str = "") -> str:
        """Why nothing can be written down now, and what to do, or why it does not go on with this job.

        It is kept here and nowhere else: what cannot be written cannot be told by the database.
        """
        if self._trouble is None:
            return self._aside.why(framework)
        words = (self._trouble.message, self._trouble.hint, "The cluster goes on once it can write again.")
        return " ".join(filter(None, words))

    def quarantined(self) -> int:
        """How many jobs an unexpected error keeps it from."""
        return len(self._aside)

    def unwritten_stops(self) -> int:
        """How many jobs were stopped of which the database does not know it yet."""
        return len(self._unwritten.jobs)

    async def stop_without_store(self, job_id: int) -> None:
        """End a job's tasks though the database cannot be told that it is stopped: it is, once it can."""
        await self._unwritten.add(job_id)
        self._look_at(job_id)
        if job_id in self._records:
            self._records[job_id].row = replace(self._records[job_id].row, execution_type="STOP")
        await self._try_to_stop(await self._store.read(lambda conn: jobs.live_tasks_of(conn, job_id)))

    def _set_trouble(self, error: Exception | None) -> None:
        before, self._trouble = self.degraded_reason(), error if isinstance(error, StoreError) else None
        if self.degraded_reason() != before:
            self._store.changes.wake_all()

    @property
    def busy(self) -> bool:
        """Whether any job is not over."""
        return bool(self._records or self._queue or self._submitted or self._aside)

    # -- waking --------------------------------------------------------------------------------

    def _request(self, requests: Requests) -> None:
        hurry = not len(self._queue.waiting)
        for job_id, newcomer in requests.items():
            if newcomer is None:
                self._requests.add(job_id)
                self._aside.retry_now(job_id)
                hurry = True
            else:
                self._submitted[job_id] = newcomer
        if hurry:
            self._wake.set()
        elif self._later is None:
            # Others wait already, so a newcomer has time: many are then taken in at once.
            self._later = asyncio.get_running_loop().call_later(_NEWCOMERS_S, self._take_in_now)

    def requeue_unschedulable(self) -> None:
        """The shares are others now: what could never fit may fit, and what waits may start."""
        for job_id in self._queue.take_unschedulable():
            if job_id in self._timers:
                self._timers.pop(job_id).cancel()
                self._records[job_id].deferred = False
            if job_id in self._records:
                self._requests.add(job_id)
            else:
                self._submitted[job_id] = None
        self._wake.set()

    def _take_in_now(self) -> None:
        self._later = None
        self._wake.set()

    def _look_at(self, job_id: int) -> None:
        self._requests.add(job_id)
        self._wake.set()

    def _try_again(self, job_id: int) -> None:
        record = self._records.get(job_id)
        if record is None:
            self._submitted[job_id] = None
        else:
            self._requests.add(job_id)
            self._hints.update(task.uid for task in record.live)
        self._wake.set()

    def _hint(self, uid: str) -> None:
        if uid in self._job_of:
            self._hints.add(uid)
            self._wake.set()

    def _say(self, uid: str, remark: Notice) -> None:
        if uid in self._job_of:
            self._said.append((uid, remark))
            self._wake.set()

    def _sweep_all(self) -> None:
        self._sweep = None
        self._hint_at_live()
        self._wake.set()

    def _hint_at_live(self) -> None:
        for record in self._records.values():
            self._hints.update(record.tasks.live)

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        unsure = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._pass_began = time.monotonic()
            tried = self._aside.retrying()
            apart = unsure or bool(tried)
            try:
                await self._reconcile(apart=apart)
                pause = _FIRST_PAUSE_S
                unsure = False
                self._aside.release(tried)
                self._set_trouble(None)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # What is in hand may be ahead of the database now: forget it and begin from the truth.
                unsure = not isinstance(error, StoreError)
                culprit = self._at if apart and unsure else 0
                if isinstance(error, PaiError):
                    log.warning("The controller starts over: %s", error)
                elif not culprit:  # else it is told together with the job
                    log.exception("The controller starts over after an unexpected error.")
                self._set_trouble(error)
                await asyncio.sleep(pause)
                pause = _FIRST_PAUSE_S if culprit else min(pause * 2, _LONGEST_PAUSE_S)
                await self._reload_until_it_works(culprit, error)
            finally:
                self._pass_began = None

    async def _reload_until_it_works(self, culprit: int, failure: Exception) -> None:
        """``culprit`` is the job with which the pass failed, where that is known."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                if self._trouble is not None:
                    # To read all jobs anew is much work, and in vain while nothing can be written.
                    await self._store.probe_write()
                await self._load_all()
                names = await self._store.read(lambda conn: jobs.names_of(conn, [culprit]))
            except StoreError as error:
                if str(error) != str(self._trouble):
                    log.warning("The controller cannot take up its jobs: %s", error)
                self._set_trouble(error)
                await asyncio.sleep(_TRY_OUT_S)
            except Exception:
                log.exception("The controller cannot take up its jobs.")
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                break
        if culprit in names:
            self._aside.add(culprit, names[culprit], failure)
            await self._end_what_is_to_stop(culprit)

    async def _end_what_is_to_stop(self, job_id: int) -> None:
        """Also without a word in the database: it is asked for, and what ended tells that it was stopped."""
        record = self._records.get(job_id)
        if record is not None and record.stop_wanted:
            await self._try_to_stop([task.uid for task in record.live])

    async def _try_to_stop(self, uids: Sequence[str]) -> None:
        """It may be just this that goes wrong with the job, and is no reason to keep all others waiting."""
        try:
            await self._engines.stop(uids, self._grace_s)
        except Exception:
            log.exception("Tasks could not be told to stop; that is tried again.")

    async def _load_all(self) -> None:
        """Forget what is in hand, and take up every job that is not over."""
        for timer in self._timers.values():
            timer.cancel()
        await self._in_hand.clear()
        # Emptied before reading: what is submitted meanwhile is then queued on top of what is read.
        for kept in (self._timers, self._stop_sent, self._queue, self._reasons):
            kept.clear()
        self._submitted.clear()
        self._recheck.clear()
        waiting = await self._in_hand.load_all()
        self._submitted.update(dict.fromkeys(job.id for job in waiting))
        self._patience.resume(await self._in_hand.waited_since(waiting))
        self._requests.update(self._records)
        self._hint_at_live()
        self._wake.set()

    # -- one pass ------------------------------------------------------------------------------

    async def _reconcile(self, *, apart: bool) -> None:
        """``apart``: each job in a commit of its own, so that it shows with which one something is wrong."""
        requests, self._requests = self._requests - self._aside.out, set()
        hints, self._hints = {uid for uid in self._hints if self._in_reach(uid)}, set()
        touched: dict[int, JobRecord] = {}
        changes = Changes()
        now_ms = _now_ms()
        self._at = 0
        for job_id, _ in self._each([(job_id, None) for job_id in self._unwritten.jobs - self._aside.out]):
            await self._store.write(partial(jobs.stop, job_id=job_id))
            await self._unwritten.discard(job_id)
            requests.add(job_id)
        if self._submitted:
            await self._enqueue_new()
        if requests:
            for record in await self._in_hand.refresh(requests):
                if record.row.id in self._unwritten.jobs:  # while we were at it
                    record.row = replace(record.row, execution_type="STOP")
                touched[record.row.id] = record
        said, self._said = self._said, []
        for uid, remark in said:
            if self._in_reach(uid):
                event = Event(self._job_of[uid], remark.type, remark.reason, remark.message)
                changes.events.append(event)
        for _, uids in self._each(self._by_job(hints).items() if apart else [(0, hints)]):
            if uids:
                await self._observer.observe(uids, touched, changes, now_ms)
            await asyncio.sleep(0)  # few tasks are looked at without leaving the loop to others
        for _, record in self._each(touched.items()):
            transitions.advance(record, changes, now_ms)
            self._update_queues(record, changes, now_ms)
        if apart:
            # Before others get what is free now: had that not been written, it would be given away twice.
            await self._apply(changes, now_ms, apart=True)
            changes = Changes()
        while self._recheck:
            # At once, with the end that they waited for: nobody then sees them wait for what is over.
            await self._judge_conditions(changes, now_ms)
        await self._start_what_fits(changes, now_ms)
        await self._apply(changes, now_ms, apart=apart)
        self._arm_sweep()
        if self._recheck:
            self._wake.set()
        if not self.busy:
            self.idle_since = time.monotonic()

    async def _apply(self, changes: Changes, now_ms: int, *, apart: bool) -> None:
        parts = changes.split_by_job(self._job_of) if apart else {0: changes}
        for _, part in self._each(parts.items()):
            await self._write_and_act(part, now_ms)

    async def _write_and_act(self, changes: Changes, now_ms: int) -> None:
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for job_id in changes.launch:
            # Made ready while the decision is being written, started when it is on disk.
            self._records[job_id].written = written
            self._launcher.launch(self._records[job_id])
        forgotten: list[str] = []
        try:
            if changes:
                forgotten = await self._store.write(lambda conn: changes.write(conn, now_ms))
        except BaseException:
            written.set_result(False)
            raise
        written.set_result(True)
        if forgotten:
            await self._engines.remove(forgotten)
        if changes.stop:
            self._stop_sent.update(changes.stop)
            await self._engines.stop(changes.stop, self._grace_s)

    def _in_reach(self, uid: str) -> bool:
        """Whether it is a task of a job that we go on with."""
        job_id = self._job_of.get(uid)
        return job_id is not None and not self._aside.excludes(job_id)

    def _by_job(self, uids: Iterable[str]) -> dict[int, set[str]]:
        grouped: dict[int, set[str]] = {}
        for uid in uids:
            grouped.setdefault(self._job_of[uid], set()).add(uid)
        return grouped

    def _each(self, of_jobs: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """One after another; when something goes wrong on the way, it is known with which job."""
        for job_id, item in of_jobs:
            self._at = job_id
            yield job_id, item
        self._at = 0

    async def _enqueue_new(self) -> None:
        """New jobs: to the queue, as what the scheduler compares."""
        submitted = {
            job_id: job for job_id, job in self._submitted.items() if not self._aside.excludes(job_id)
        }
        self._submitted = {}
        if len(submitted) <= FEW and not len(self._queue.waiting):
            # They will start at once, most likely: read them whole now instead of twice.
            records = await self._in_hand.refresh(sorted(submitted))
            self._queue_up([record.pending_job() for _, record in self._each((r.row.id, r) for r in records)])
            return
        self._queue_up(filter(None, submitted.values()))
        unknown = sorted(job_id for job_id, job in submitted.items() if job is None)
        for start in range(0, len(unknown), _READ_AT_ONCE):
            part = unknown[start : start + _READ_AT_ONCE]
            self._queue_up(await self._store.read(partial(jobs.pending_jobs, job_ids=part)))

    def _queue_up(self, newcomers: Iterable[PendingJob]) -> None:
        for job_id, job in self._each((job.id, job) for job in newcomers):
            if self._queue.add(job):
                self._recheck.add(job_id)

    async def _judge_conditions(self, changes: Changes, now_ms: int) -> None:
        """Jobs that wait for others: let them go, or end them when what they wait for cannot come."""
        held = {job_id: self._queue.conditions(job_id) for job_id in self._recheck}
        self._recheck = set()
        names = sorted({condition.framework for conditions in held.values() for condition in conditions})
        states = await self._store.read(lambda conn: jobs.states_of(conn, names))
        states.update(changes.ended)
        for job_id, conditions in self._each(held.items()):
            verdict = check_dependencies(conditions, states)
            if verdict.broken:
                for record in await self._in_hand.refresh([job_id]):
                    transitions.fail_unstarted(record, verdict.broken, changes, now_ms)
                    self._update_queues(record, changes, now_ms)
            elif verdict.waits_for:
                others = ", ".join(verdict.waits_for)
                self._reasons.report(job_id, f"The job waits for {others} to be over.", changes)
            else:
                self._queue.release(job_id)

    def _update_queues(self, record: JobRecord, changes: Changes, now_ms: int) -> None:
        """Put the record where its state belongs: waiting, timed, or forgotten."""
        job_id = record.row.id
        state = record.row.sub_state
        if state == ATTEMPT_COMPLETED:
            wait_ms = min((record.row.retry_at_ms or 0) - now_ms, int((record.row.retry_delay_s or 0) * 1000))
            if wait_ms <= 0:
                self._forget_tasks(record)
                transitions.begin_next_attempt(record, changes)
                state = PENDING
            elif job_id not in self._timers:
                loop = asyncio.get_running_loop()
                self._timers[job_id] = loop.call_later(wait_ms / 1000, self._retry_due, job_id)
        if record.unlaunched and not record.live:
            self._forget_tasks(record)
            transitions.requeue(record, changes)
            state = PENDING
        if state == PENDING and record.deferred:
            self._defer_launch(record)
        elif state == PENDING or (
            state in (PREPARING, RUNNING)
            and not record.job.gang
            and not record.unlaunched
            and any(record.unstarted())
        ):
            self._queue.add_started(record.waiting_job())
        else:
            self._queue.remove(job_id)
        if state == COMPLETED:
            self._forget_tasks(record)
            timer = self._timers.pop(job_id, None)
            if timer is not None:
                timer.cancel()
            self._reasons.forget(job_id)
            changes.ended[record.row.framework] = job_state(state, record.row.exit_code)
            self._recheck.update(self._queue.waiting_for(record.row.framework))
            del self._records[job_id]

    def _defer_launch(self, record: JobRecord) -> None:
        """What keeps it from being launched may pass. Until the next try it holds nothing."""
        job_id = record.row.id
        self._queue.mark_unschedulable(job_id)
        if job_id not in self._timers:
            pause = min(_FIRST_PUT_OFF_S * 2.0 ** min(record.launch_failures - 1, 10), _LONGEST_PUT_OFF_S)
            loop = asyncio.get_running_loop()
            self._timers[job_id] = loop.call_later(pause, self._retry_due, job_id)

    def _retry_due(self, job_id: int) -> None:
        self._timers.pop(job_id, None)
        record = self._records.get(job_id)
        if record is not None:
            # The wait was measured by the loop's own clock; the wall clock may have jumped.
            record.row = replace(record.row, retry_at_ms=0)
            record.deferred = False
            self._look_at(job_id)

    async def _start_what_fits(self, changes: Changes, now_ms: int) -> None:
        """One plan over everything that waits; whoever is to start is then taken in hand."""
        if not len(self._queue.waiting):
            self._patience.clear()
            return
        decisions = plan(self._snapshot(), self._queue.waiting)
        unknown = [d.job_id for d in decisions if isinstance(d, Start) and d.job_id not in self._records]
        if unknown:
            await self._in_hand.refresh(unknown)
        heirs = {d.for_job for d in decisions if isinstance(d, Preempt)}
        names = await self._store.read(lambda conn: jobs.names_of(conn, heirs)) if heirs else {}
        for _, decision in self._each((decision.job_id, decision) for decision in decisions):
            if isinstance(decision, Start):
                self._start(decision, changes, now_ms)
            elif isinstance(decision, Preempt):
                for_job = names.get(decision.for_job, "another job")
                transitions.preempt(self._records[decision.job_id], for_job, changes)
            else:
                if decision.never or self._is_time_to_say(decision.job_id):
                    self._reasons.report(decision.job_id, decision.reason, changes)
                if decision.never:
                    self._queue.mark_unschedulable(decision.job_id)

    def _is_time_to_say(self, job_id: int) -> bool:
        """Not while a part of it runs."""
        record = self._records.get(job_id)
        return (record is None or not record.live) and self._reasons.is_due(job_id)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=self._ledger.node_capacity(list(self._nodes.values())),
            shares=self._shares,
            used=self._ledger.by_vc,
            limits=self._limits,
            held_by=self._ledger.by_user,
            overdue=self._patience.starved(self._queue.waiting.waiting_users(), time.monotonic()),
            guests=self._in_hand.preemptible_jobs(self._aside.excludes),
            partial=self._in_hand.partly_started(self._queue.waiting),
            self_scheduling=self._engines.self_scheduling,
        )

    def _start(self, decision: Start, changes: Changes, now_ms: int) -> None:
        record = self._records.get(decision.job_id)
        self._queue.remove(decision.job_id)
        if record is None:
            return  # gone meanwhile
        transitions.advance(record, changes, now_ms)
        if record.row.sub_state in (PENDING, PREPARING, RUNNING):
            if record.row.sub_state == PENDING and record.row.attempt == 0 and not record.launch_failures:
                changes.events += self._launcher.start_warnings(record)
            placed = transitions.place(
                record,
                decision.placements,
                self._nodes,
                self._ledger,
                self._engines.ports_free,
                changes,
                now_ms,
            )
            for task in placed:
                self._job_of[task.uid] = decision.job_id
            self._reasons.started(decision.job_id, changes)
            self._patience.started(record.row.vc, record.row.username)
        self._update_queues(record, changes, now_ms)

    def _forget_tasks(self, record: JobRecord) -> None:
        for uid in record.tasks:
            self._job_of.pop(uid, None)
            self._stop_sent.discard(uid)
            self._ledger.free(uid)

    def _arm_sweep(self) -> None:
        if self._job_of and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_all)


def total_resources(nodes: Sequence[Node]) -> Resources:
    """All that the nodes have together."""
    total = Resources()
    for node in nodes:
        total = total.plus(Resources(node.cpu, node.memory_mb, len(node.gpus)))
    return total


def _now_ms() -> int:
    return int(time.time() * 1000)
