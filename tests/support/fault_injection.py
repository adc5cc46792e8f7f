"""Fault injection: a controller over a real store, driven by random numbers, and its invariants when idle.

The engine is a few dictionaries: what matters is what the controller writes.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.pending_queue import priority_class_of
from paicluster.controller.reconciler import Controller
from paicluster.controller.timings import DEFAULT_TIMINGS, Timings
from paicluster.engines.interface import (
    ABSENT,
    Hint,
    LaunchFailed,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    TaskLaunch,
    ignore_notice,
)
from paicluster.scheduler.resource_requests import Resources, encode, request_of
from paicluster.store import Store, jobs
from paicluster.store.jobs import Inserted, NewJob
from paicluster.store.rows import ActiveJob, TaskRow
from paiprotocol.jobs import read_job
from support.prepared_database import prepare_database
from support.server_fixture import job as job_of

NODES = (
    Node("one", "10.0.0.1", cpu=8, memory_mb=800, gpus=(0, 1, 2, 3)),
    Node("two", "10.0.0.2", cpu=4, memory_mb=400, gpus=(0, 2)),
)
QUOTAS = {"default": Resources(5, 500, 2), "lab": Resources(4, 400, 3), "dev": Resources(3, 300, 1)}
PRIORITIES = ("crit", "prod", "test", "oppo", "oppo")
DEADLINE_S = 60.0


class FakeEngine:
    """An engine that records its calls. It outlives controllers, as tasks do."""

    def __init__(self, dice: random.Random, is_committed: Callable[[str], bool]):
        self._is_committed = is_committed
        # Tasks launched before their intent was committed: a crash would forget them.
        self.launched_uncommitted: list[str] = []
        self.observations: dict[str, Observation] = {}
        self.stop_requested: set[str] = set()
        self.launches: dict[str, int] = {}
        # Tasks for which `stop` fails.
        self.unstoppable: set[str] = set()
        # Whether its disk is full: then no task can be asked to stop.
        self.is_full = False
        self._dice = dice
        self._hint: Hint = lambda uid: None

    # -- the engine interface

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint = hint

    async def close(self) -> None:
        self._hint = lambda uid: None

    def nodes(self) -> Sequence[Node]:
        return NODES

    def notices(self) -> Sequence[Notice]:
        return (Notice("LimitsNotEnforced", "The fake engine enforces no limits."),)

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        return self._dice.random() < 0.9

    def has(self, uid: str) -> bool:
        return uid in self.observations

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        await asyncio.sleep(0)
        if self._dice.random() < 0.1:
            raise LaunchFailed("Injected failure.")
        for task in gang:
            if not self._is_committed(task.uid):
                self.launched_uncommitted.append(task.uid)
            if task.uid not in self.observations:
                self.observations[task.uid] = Observation(Phase.RUNNING, started_ms=now_ms())
                self.launches[task.uid] = self.launches.get(task.uid, 0) + 1
                self._hint(task.uid)

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        await asyncio.sleep(0)
        return {uid: self.observations.get(uid, ABSENT) for uid in uids}

    async def log_tail(self, uid: str, size: int) -> bytes:
        return b""

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        if not self.unstoppable.isdisjoint(uids):
            raise PermissionError("unstoppable")
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        for uid in uids:
            if uid not in self.observations:
                self.observations[uid] = Observation(
                    Phase.ENDED, ended_ms=now_ms(), stopped=True, killed_by_us=True
                )
            elif self.observations[uid].phase is Phase.RUNNING:
                self.stop_requested.add(uid)
            self._hint(uid)

    async def remove(self, uids: Sequence[str]) -> None:
        pass

    async def sizes(self) -> dict[str, int]:
        return {}

    # -- driven by the test

    @property
    def running(self) -> list[str]:
        return sorted(uid for uid, seen in self.observations.items() if seen.phase is Phase.RUNNING)

    def end(self, uid: str, code: int) -> None:
        started_ms = self.observations[uid].started_ms
        if uid in self.stop_requested:
            ended = Observation(Phase.ENDED, started_ms, now_ms(), signal=15, stopped=True, killed_by_us=True)
        else:
            ended = Observation(Phase.ENDED, started_ms, now_ms(), exit_code=code)
        self._close(uid, ended)

    def lose(self, uid: str) -> None:
        self._close(uid, Observation(Phase.LOST, self.observations[uid].started_ms))

    def _close(self, uid: str, seen: Observation) -> None:
        self.observations[uid] = seen
        self.stop_requested.discard(uid)
        if self._dice.random() < 0.9:  # the sweep finds the others
            self._hint(uid)


def now_ms() -> int:
    return int(time.time() * 1000)


class Cluster:
    """A controller over a real store; it may be replaced at any time."""

    def __init__(self, folder: Path, dice: random.Random, timings: Timings = DEFAULT_TIMINGS):
        self.dice = dice
        self._timings = timings
        prepare_database(folder)
        self.store = Store.open(folder / "cluster.db", render_summary)
        self.engine = FakeEngine(
            dice, lambda uid: self.store.read_inline(lambda conn: jobs.get_task(conn, uid)) is not None
        )
        self.ids: list[int] = []
        # Jobs whose changes cannot be written.
        self.unwritable: set[int] = set()
        self.names: list[str] = []
        self._settings = LaunchSettings(
            base_environment={},
            rest_server_uri="http://nowhere",
            sources=folder,
            keep_submitted_environment=False,
            unseal=lambda sealed, framework: sealed,
            job_token=lambda row: "token",
        )
        self.controller = self._new_controller()

    def _new_controller(self) -> Controller:
        return Controller(
            self.store, self.engine, self._settings, quotas=QUOTAS, grace_s=0, timings=self._timings
        )

    async def submit(self) -> None:
        dice = self.dice
        gang = dice.random() < 0.6
        extras: dict[str, Any] = {"hivedScheduler": {"jobPriorityClass": dice.choice(PRIORITIES)}}
        additions: dict[str, Any] = {}
        if not gang:
            extras["gangAllocation"] = False
            additions["arrayLimit"] = dice.choice((0, 1, 2))
        if self.names and dice.random() < 0.15:
            after = {"job": dice.choice(self.names), "on": dice.choice(("success", "end"))}
            additions["after"] = [after]
        user = dice.choice(("ann", "bob", "cy"))
        extras["openpaisdk"] = {name: value for name, value in additions.items() if value}
        text = job_of(
            f"job{len(self.ids)}",
            "true",
            instances=dice.choice((1, 1, 2, 4)),
            cpu=dice.choice((1, 1, 2, 3, 9)),
            memory_mb=dice.choice((10, 100, 250)),
            gpu=dice.choice((0, 0, 1, 2)),
            ports=dice.choice((None, {"http": 1}, {"a": 2, "b": 1})),
            jobRetryCount=dice.choice((0, 1, 2)),
            defaults={"virtualCluster": dice.choice(tuple(QUOTAS))},
            extras=extras,
        )
        if not gang:
            text["taskRoles"]["main"]["taskRetryCount"] = dice.choice((0, 1))
        job = read_job(json.dumps(text))
        new = NewJob(
            user,
            job.name,
            str(text["defaults"]["virtualCluster"]),
            json.dumps(text),
            json.dumps(text),
            now_ms(),
            priority=extras["hivedScheduler"]["jobPriorityClass"],
            resource_request=encode(request_of(job, user)),
        )
        (made,) = await self.store.write(lambda conn: jobs.insert_jobs(conn, [new]))
        assert isinstance(made, Inserted)
        self.ids.append(made.id)
        self.names.append(new.framework)

    async def stop_some(self) -> None:
        row = await self.store.read(lambda conn: jobs.get_job_by_id(conn, self.dice.choice(self.ids)))
        if row is not None and row.sub_state != "Completed":
            await self.store.write(lambda conn: jobs.set_execution_type(conn, row.id, "STOP"))

    def end_some(self) -> None:
        for uid in self.engine.running:
            if self.dice.random() < 0.4:
                self.engine.end(uid, self.dice.choice((0, 0, 0, 1, 137)))

    def lose_one(self) -> None:
        if self.engine.running:
            self.engine.lose(self.dice.choice(self.engine.running))

    def let_time_pass(self) -> None:
        """All retries are due, and the sweep observes everything."""
        controller = self.controller
        for job_id, timer in list(controller._wakeups.timers.items()):
            timer.cancel()
            controller._wakeups.retry_due(job_id)
        for record in list(controller._active.records.values()):
            for uid in list(record.backing_off):
                controller._active.backoffs[uid].cancel()
                controller._active.backoff_over(record, uid)
        for job_id in controller._quarantine.excluded:
            controller._quarantine.retry_now(job_id)
        controller._wakeups.sweep()

    async def restart(self) -> None:
        """Sometimes an orderly shutdown, sometimes a crash at any point."""
        old = self.controller
        if self.dice.random() < 0.5:
            await old.close()
        else:
            old._unsubscribe()
            assert old._task is not None
            records = old._active.records.values()
            tasks = [old._task, *(r.launching for r in records if r.launching is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            old._wakeups.close()
            old._active.cancel_backoffs()
        # Its queued writes are committed or dropped before this: a dead server writes nothing later.
        await self.store.write(lambda conn: None)
        self.controller = self._new_controller()
        await self.controller.start()

    async def wait_idle(self) -> None:
        """Wait until the controller has nothing left to do."""
        deadline = time.monotonic() + DEADLINE_S
        idle_checks = 0
        while idle_checks < 3:
            busy = (
                self.controller._wakeups.is_awake
                or self.controller._reconcile_started is not None
                or any(r.launching is not None for r in self.controller._active.records.values())
            )
            idle_checks = 0 if busy else idle_checks + 1
            assert time.monotonic() < deadline, "the controller does not become idle"
            await asyncio.sleep(0 if idle_checks else 0.0005)

    async def check(self) -> None:
        while True:
            # A timer may wake the controller during the read: the result is then of another moment.
            await self.wait_idle()
            commits = self.store.commits
            active = await self.store.read(jobs.active_jobs)
            controller = self.controller
            idle = not controller._wakeups.is_awake and not controller._reconcile_started
            if self.store.commits == commits and idle:
                break
        live = {task.uid: (one, task) for one in active for task in one.tasks if not task.ended}
        _check_placements([task for _, task in live.values()])
        _check_quotas(list(live.values()))
        for one in active:
            _check_job(one)
        # The allocations match the database, and their sums are right.
        allocations = self.controller._active.allocations
        assert allocations._by_task.keys() == live.keys()
        for sums, key in ((allocations.by_node, _node), (allocations.by_user, _user)):
            assert _nonzero(sums) == _summed(live.values(), key)
        on_quota = [pair for pair in live.values() if not _is_preemptible(pair[0])]
        assert _nonzero(allocations.by_vc) == _summed(on_quota, _vc)
        # Every running task has an allocation, none belongs to a finished job, and none ran twice.
        assert set(self.engine.running) <= live.keys()
        assert set(self.engine.launches.values()) <= {1}
        assert not self.engine.launched_uncommitted


_Pair = tuple[ActiveJob, TaskRow]


def _node(pair: _Pair) -> str:
    return pair[1].node or ""


def _user(pair: _Pair) -> str:
    return pair[0].job.username


def _vc(pair: _Pair) -> str:
    return pair[0].job.vc


def _is_preemptible(one: ActiveJob) -> bool:
    return priority_class_of(one.job.priority) == "oppo"


def _resources(task: TaskRow) -> Resources:
    return Resources(int(task.cpu), task.memory_mb, len(json.loads(task.gpus or "[]")))


def _summed(pairs: Any, key: Callable[[_Pair], str]) -> dict[str, Resources]:
    sums: dict[str, Resources] = {}
    for pair in pairs:
        sums[key(pair)] = sums.get(key(pair), Resources()).plus(_resources(pair[1]))
    return _nonzero(sums)


def _nonzero(sums: dict[str, Resources]) -> dict[str, Resources]:
    return {name: resources for name, resources in sums.items() if resources != Resources()}


def _check_placements(live: list[TaskRow]) -> None:
    ports: list[int] = []
    for node in NODES:
        on_node = [task for task in live if task.node == node.name]
        used = Resources()
        gpus: list[int] = []
        for task in on_node:
            used = used.plus(_resources(task))
            gpus += json.loads(task.gpus or "[]")
            ports += [port for numbers in json.loads(task.ports or "{}").values() for port in numbers]
        assert used.fits(Resources(node.cpu, node.memory_mb, len(node.gpus)))
        assert len(gpus) == len(set(gpus)) and set(gpus) <= set(node.gpus)
    assert len(ports) == len(set(ports))
    assert {task.node for task in live} <= {node.name for node in NODES}


def _check_quotas(live: list[_Pair]) -> None:
    for vc, used in _summed([pair for pair in live if not _is_preemptible(pair[0])], _vc).items():
        assert used.fits(QUOTAS[vc]), f"{vc} uses {used}"


def _check_job(one: ActiveJob) -> None:
    live = [(task.role, task.task_index) for task in one.tasks if not task.ended]
    assert len(live) == len(set(live)), "a task has two live attempts"
    latest = {(task.role, task.task_index): task.sub_state for task in one.tasks}
    if one.job.sub_state in ("AttemptDeleting", "AttemptCompleted"):
        assert "AttemptCompleted" not in latest.values(), "a task of a decided attempt is to be retried"
    if one.job.sub_state in ("AttemptCreationPending", "AttemptCompleted"):
        assert not live, "a pending job has allocations"


def check_gangs_and_arrays(conn: Connection) -> None:
    for one in jobs.active_jobs(conn):
        spec = jobs.job_spec(conn, one.job.id)
        assert spec is not None
        job = read_job(spec.job, stored=True)
        live = [task for task in one.tasks if not task.ended]
        if job.gang:
            started = {(task.role, task.task_index) for task in one.tasks}
            assert len(started) in (0, sum(role.instances for role in job.task_roles)), "half a gang"
        elif job.additions.array_limit:
            assert len(live) <= job.additions.array_limit


def check_finished_jobs(conn: Connection, ids: list[int]) -> None:
    for job_id in ids:
        row = jobs.get_job_by_id(conn, job_id)
        if row is not None and row.sub_state == "Completed":
            tasks = jobs.tasks_of(conn, job_id, row.attempt)
            assert {task.sub_state for task in tasks} <= {"Completed"}
