"""A controller over a real store, to be driven by dice, and what must be true of its books whenever it rests.

The engine here is a few dictionaries: what it does is of no interest, what the controller writes down is.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from openpaisdk.protocol import read_job
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.pending_queue import level_of
from paicluster.controller.reconciler import Controller
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
from support.server_fixture import job as job_of

NODES = (
    Node("one", "10.0.0.1", cpu=8, memory_mb=800, gpus=(0, 1, 2, 3)),
    Node("two", "10.0.0.2", cpu=4, memory_mb=400, gpus=(0, 2)),
)
SHARES = {"default": Resources(5, 500, 2), "lab": Resources(4, 400, 3), "dev": Resources(3, 300, 1)}
LEVELS = ("crit", "prod", "test", "oppo", "oppo")
DEADLINE_S = 60.0


class Dictionaries:
    """An engine that remembers what it was told. It outlives controllers, as tasks do."""

    def __init__(self, dice: random.Random, is_written: Callable[[str], bool]):
        self._is_written = is_written
        # What was launched though a crash would have made it be forgotten.
        self.unwritten: list[str] = []
        self.seen: dict[str, Observation] = {}
        self.asked: set[str] = set()
        self.launches: dict[str, int] = {}
        # Tasks that cannot be told to stop.
        self.deaf: set[str] = set()
        self._dice = dice
        self._hint: Hint = lambda uid: None

    # -- as the controller sees it

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint = hint

    async def close(self) -> None:
        self._hint = lambda uid: None

    def nodes(self) -> Sequence[Node]:
        return NODES

    def notices(self) -> Sequence[Notice]:
        return (Notice("LimitsNotEnforced", "Nothing is limited in dictionaries."),)

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        return self._dice.random() < 0.9

    def has(self, uid: str) -> bool:
        return uid in self.seen

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        await asyncio.sleep(0)
        if self._dice.random() < 0.1:
            raise LaunchFailed("The dice said no.")
        for task in gang:
            if not self._is_written(task.uid):
                self.unwritten.append(task.uid)
            if task.uid not in self.seen:
                self.seen[task.uid] = Observation(Phase.RUNNING, started_ms=now_ms())
                self.launches[task.uid] = self.launches.get(task.uid, 0) + 1
                self._hint(task.uid)

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        await asyncio.sleep(0)
        return {uid: self.seen.get(uid, ABSENT) for uid in uids}

    async def log_tail(self, uid: str, size: int) -> bytes:
        return b""

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        if not self.deaf.isdisjoint(uids):
            raise PermissionError("deaf")
        for uid in uids:
            if uid not in self.seen:
                self.seen[uid] = Observation(Phase.ENDED, ended_ms=now_ms(), stopped=True, killed_by_us=True)
            elif self.seen[uid].phase is Phase.RUNNING:
                self.asked.add(uid)
            self._hint(uid)

    async def remove(self, uids: Sequence[str]) -> None:
        pass

    async def sizes(self) -> dict[str, int]:
        return {}

    # -- as the test drives it

    @property
    def running(self) -> list[str]:
        return sorted(uid for uid, seen in self.seen.items() if seen.phase is Phase.RUNNING)

    def end(self, uid: str, code: int) -> None:
        began = self.seen[uid].started_ms
        if uid in self.asked:
            ended = Observation(Phase.ENDED, began, now_ms(), signal=15, stopped=True, killed_by_us=True)
        else:
            ended = Observation(Phase.ENDED, began, now_ms(), exit_code=code)
        self._close(uid, ended)

    def lose(self, uid: str) -> None:
        self._close(uid, Observation(Phase.LOST, self.seen[uid].started_ms))

    def _close(self, uid: str, seen: Observation) -> None:
        self.seen[uid] = seen
        self.asked.discard(uid)
        if self._dice.random() < 0.9:  # the others are found by the sweep
            self._hint(uid)


def now_ms() -> int:
    return int(time.time() * 1000)


class Cluster:
    """A controller over a real store; it may be replaced at any moment."""

    def __init__(self, folder: Path, dice: random.Random):
        self.dice = dice
        self.store = Store.open(folder / "cluster.db")
        self.engine = Dictionaries(
            dice, lambda uid: self.store.read_inline(lambda conn: jobs.get_task(conn, uid)) is not None
        )
        self.ids: list[int] = []
        # Jobs of which nothing can be written.
        self.cursed: set[int] = set()
        self.names: list[str] = []
        self._settings = LaunchSettings(
            base_environment={},
            rest_server_uri="http://nowhere",
            sources=folder,
            keep_submitted_environment=False,
            unseal=lambda sealed, framework: sealed,
            job_token=lambda row: "token",
        )
        self.controller = self._new()

    def _new(self) -> Controller:
        return Controller(self.store, self.engine, self._settings, shares=SHARES, grace_s=0)

    async def submit(self) -> None:
        dice = self.dice
        gang = dice.random() < 0.6
        extras: dict[str, Any] = {"hivedScheduler": {"jobPriorityClass": dice.choice(LEVELS)}}
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
            defaults={"virtualCluster": dice.choice(tuple(SHARES))},
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
            need=encode(request_of(job, user)),
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

    def time_passes(self) -> None:
        """Every retry is due, and the sweep looks at everything."""
        for job_id, timer in list(self.controller._timers.items()):
            timer.cancel()
            self.controller._retry_due(job_id)
        for record in list(self.controller._records.values()):
            for uid in list(record.backing_off):
                self.controller._in_hand.rests[uid].cancel()
                self.controller._in_hand.backoff_over(record, uid)
        for job_id in self.controller._aside.out:
            self.controller._aside.retry_now(job_id)
        self.controller._sweep_all()

    async def restart(self) -> None:
        """Sometimes in good order, sometimes in the middle of whatever it was doing."""
        old = self.controller
        if self.dice.random() < 0.5:
            await old.close()
        else:
            old._unsubscribe()
            assert old._task is not None
            tasks = [old._task, *(r.launching for r in old._records.values() if r.launching is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for timer in (
                *old._timers.values(),
                *old._in_hand.rests.values(),
                *([old._sweep] if old._sweep else []),
            ):
                timer.cancel()
        # What it had handed in is written or was never: no write of a server that is gone comes after it.
        await self.store.write(lambda conn: None)
        self.controller = self._new()
        await self.controller.start()

    async def quiet(self) -> None:
        """Until the controller has nothing left to do."""
        ends = time.monotonic() + DEADLINE_S
        calm = 0
        while calm < 3:
            busy = (
                self.controller._wake.is_set()
                or self.controller._pass_began is not None
                or any(r.launching is not None for r in self.controller._records.values())
            )
            calm = 0 if busy else calm + 1
            assert time.monotonic() < ends, "the controller does not come to rest"
            await asyncio.sleep(0 if calm else 0.0005)

    async def check(self) -> None:
        while True:
            # A timer may wake the controller while we read: then the books are of another moment.
            await self.quiet()
            commits = self.store.commits
            active = await self.store.read(jobs.active_jobs)
            controller = self.controller
            if self.store.commits == commits and not controller._wake.is_set() and not controller._pass_began:
                break
        live = {task.uid: (one, task) for one in active for task in one.tasks if not task.over}
        _check_places([task for _, task in live.values()])
        _check_shares(list(live.values()))
        for one in active:
            _check_job(one)
        # The ledger says what the database says, and its sums are the sums.
        ledger = self.controller._ledger
        assert ledger._held.keys() == live.keys()
        for sums, key in ((ledger.by_node, _node), (ledger.by_user, _user)):
            assert _nonzero(sums) == _summed(live.values(), key)
        owners = [pair for pair in live.values() if not _guest(pair[0])]
        assert _nonzero(ledger.by_vc) == _summed(owners, _vc)
        # Whatever runs is accounted for; nothing of a finished job does, and nothing ran twice.
        assert set(self.engine.running) <= live.keys()
        assert set(self.engine.launches.values()) <= {1}
        assert not self.engine.unwritten


_Pair = tuple[ActiveJob, TaskRow]


def _node(pair: _Pair) -> str:
    return pair[1].node or ""


def _user(pair: _Pair) -> str:
    return pair[0].job.username


def _vc(pair: _Pair) -> str:
    return pair[0].job.vc


def _guest(one: ActiveJob) -> bool:
    return level_of(one.job.priority) == "oppo"


def _amount(task: TaskRow) -> Resources:
    return Resources(int(task.cpu), task.memory_mb, len(json.loads(task.gpus or "[]")))


def _summed(pairs: Any, key: Callable[[_Pair], str]) -> dict[str, Resources]:
    found: dict[str, Resources] = {}
    for pair in pairs:
        found[key(pair)] = found.get(key(pair), Resources()).plus(_amount(pair[1]))
    return _nonzero(found)


def _nonzero(sums: dict[str, Resources]) -> dict[str, Resources]:
    return {name: amount for name, amount in sums.items() if amount != Resources()}


def _check_places(live: list[TaskRow]) -> None:
    ports: list[int] = []
    for node in NODES:
        here = [task for task in live if task.node == node.name]
        held = Resources()
        gpus: list[int] = []
        for task in here:
            held = held.plus(_amount(task))
            gpus += json.loads(task.gpus or "[]")
            ports += [port for numbers in json.loads(task.ports or "{}").values() for port in numbers]
        assert held.fits(Resources(node.cpu, node.memory_mb, len(node.gpus)))
        assert len(gpus) == len(set(gpus)) and set(gpus) <= set(node.gpus)
    assert len(ports) == len(set(ports))
    assert {task.node for task in live} <= {node.name for node in NODES}


def _check_shares(live: list[_Pair]) -> None:
    for vc, used in _summed([pair for pair in live if not _guest(pair[0])], _vc).items():
        assert used.fits(SHARES[vc]), f"{vc} uses {used}"


def _check_job(one: ActiveJob) -> None:
    places = [(task.role, task.task_index) for task in one.tasks if not task.over]
    assert len(places) == len(set(places)), "a task has two live attempts"
    latest = {(task.role, task.task_index): task.sub_state for task in one.tasks}
    if one.job.sub_state in ("AttemptDeleting", "AttemptCompleted"):
        assert "AttemptCompleted" not in latest.values(), "a task of what is decided is to come again"
    if one.job.sub_state in ("AttemptCreationPending", "AttemptCompleted"):
        assert not places, "a job that waits holds something"


def check_gangs_and_arrays(conn: Connection) -> None:
    for one in jobs.active_jobs(conn):
        spec = jobs.job_spec(conn, one.job.id)
        assert spec is not None
        job = read_job(spec.job, stored=True)
        live = [task for task in one.tasks if not task.over]
        if job.gang:
            started = {(task.role, task.task_index) for task in one.tasks}
            assert len(started) in (0, sum(role.instances for role in job.task_roles)), "half a gang"
        elif job.additions.array_limit:
            assert len(live) <= job.additions.array_limit


def check_that_ends_are_final(conn: Connection, ids: list[int]) -> None:
    for job_id in ids:
        row = jobs.get_job_by_id(conn, job_id)
        if row is not None and row.sub_state == "Completed":
            tasks = jobs.tasks_of(conn, job_id, row.attempt)
            assert {task.sub_state for task in tasks} <= {"Completed"}
