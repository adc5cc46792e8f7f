"""Random loads, faults and preemptions through the controller; after every step its books must add up."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from openpaisdk.protocol import read_job
from paicluster.controller import launcher, pending_reasons, reconciler
from paicluster.controller import quarantine as aside
from paicluster.controller.changes import Changes
from paicluster.engines.interface import LaunchFailed, Observation, TaskLaunch
from paicluster.scheduler.resource_requests import encode, request_of
from paicluster.store import Store, jobs
from paicluster.store.jobs import NewJob
from support.fault_injection import (
    DEADLINE_S,
    Cluster,
    check_gangs_and_arrays,
    check_that_ends_are_final,
    now_ms,
)
from support.server_fixture import job as job_of


@pytest.mark.parametrize("throw", range(8))
def test_the_books_balance_whatever_happens(
    tmp_path: Path, throw: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time passes when the dice say so, and not in the middle of a look at the books.
    monkeypatch.setattr(reconciler, "_FIRST_PUT_OFF_S", 60.0)
    monkeypatch.setattr(pending_reasons, "REPORT_AFTER_S", 60.0)
    asyncio.run(_drive(tmp_path, throw))
    assert "starts over" not in caplog.text


@pytest.mark.parametrize("throw", range(4))
def test_the_books_balance_also_when_jobs_cannot_be_written(
    tmp_path: Path, throw: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, seconds in (
        (reconciler, "_FIRST_PUT_OFF_S", 60.0),
        (pending_reasons, "REPORT_AFTER_S", 60.0),
        (aside, "_FIRST_PAUSE_S", 60.0),
        (reconciler, "_FIRST_PAUSE_S", 0.001),
    ):
        monkeypatch.setattr(module, name, seconds)
    write = Changes.write

    async def drive() -> None:
        cluster = Cluster(tmp_path, random.Random(throw))

        def write_or_not(changes: Changes, conn: Connection, now_ms: int) -> list[str]:
            written = write(changes, conn, now_ms)
            if not cluster.cursed.isdisjoint(changes.split_by_job(cluster.controller._job_of)):
                raise RuntimeError("cursed")
            return written

        monkeypatch.setattr(Changes, "write", write_or_not)
        await _drive_through(cluster, curses=True)

    asyncio.run(drive())
    assert "is set aside" in caplog.text
    assert "cannot take up" not in caplog.text


def test_a_job_that_cannot_be_told_to_stop_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "_FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(reconciler, "_FIRST_PAUSE_S", 0.001)

    async def run() -> None:
        cluster = Cluster(tmp_path, random.Random(1))
        engine = cluster.engine
        await cluster.controller.start()
        try:
            while not engine.running:
                await cluster.submit()
                await cluster.quiet()
            deaf = engine.running[0]
            engine.deaf.add(deaf)
            (task,) = await cluster.store.read(lambda conn: [jobs.get_task(conn, deaf)])
            assert task is not None
            await cluster.store.write(lambda conn: jobs.stop(conn, task.job_id))
            await _until(lambda: task.job_id in cluster.controller._aside.out)
            before = len(engine.launches)
            while len(engine.launches) == before:
                await cluster.submit()
                await cluster.quiet()
                await cluster.check()
            engine.deaf.clear()
            cluster.controller._aside.retry_now(task.job_id)
            await _until(lambda: deaf in engine.asked)
        finally:
            await cluster.controller.close()
            cluster.store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "cannot take up" not in caplog.text


async def _drive(tmp_path: Path, throw: int) -> None:
    await _drive_through(Cluster(tmp_path, random.Random(throw)))


async def _drive_through(cluster: Cluster, *, curses: bool = False) -> None:
    dice = cluster.dice
    await cluster.controller.start()
    try:
        for _ in range(70):
            if curses and cluster.ids and dice.random() < 0.3:
                cluster.cursed ^= {dice.choice(cluster.ids[-6:])}
            what = dice.random()
            if what < 0.4:
                for _ in range(dice.randrange(1, 4)):
                    await cluster.submit()
            elif what < 0.7:
                cluster.end_some()
            elif what < 0.78:
                cluster.lose_one()
            elif what < 0.86 and cluster.ids:
                await cluster.stop_some()
            elif what < 0.93:
                cluster.time_passes()
            else:
                await cluster.restart()
            if dice.random() < 0.8:  # else the next thing happens in the middle of this one
                await cluster.quiet()
                await cluster.check()
                await cluster.store.read(check_gangs_and_arrays)
        cluster.cursed.clear()
        await _to_the_end(cluster)
    finally:
        await cluster.controller.close()
        cluster.store.close()


async def _to_the_end(cluster: Cluster) -> None:
    """When every task succeeds, everything that can run is over some time, and nothing is held."""
    for _ in range(400):
        await cluster.quiet()
        await cluster.check()
        for uid in cluster.engine.running:
            cluster.engine.end(uid, 0)
        cluster.time_passes()
        await cluster.quiet()
        queue, controller = cluster.controller._queue, cluster.controller
        aside = controller._records.keys() <= {*queue._never, *queue._held}
        if aside and not controller._timers and not len(queue.waiting):
            break
    else:
        raise AssertionError("jobs are left that neither run nor start")
    await cluster.check()
    ledger = cluster.controller._ledger
    assert not ledger._held and not ledger._ports and not cluster.engine.running
    left = await cluster.store.read(jobs.active_jobs)
    # Only what can never fit still waits, and whoever waits for that.
    assert {one.job.id for one in left} == {
        *cluster.controller._queue._never,
        *cluster.controller._queue._held,
    }
    await cluster.store.read(lambda conn: check_that_ends_are_final(conn, cluster.ids))
    started = await cluster.store.read(
        lambda conn: [
            job_id
            for job_id in cluster.ids
            if any(task.attempt == 0 for task in jobs.tasks_of(conn, job_id, 0))
        ]
    )
    for job_id in started:
        events = await cluster.store.read(lambda conn, job_id=job_id: jobs.events_of(conn, job_id))  # type: ignore[misc]
        said = [event for event in events if event.reason == "LimitsNotEnforced"]
        assert len(said) == 1, "said once for each job"


class _Even(random.Random):
    def random(self) -> float:
        return 0.5


def test_what_is_decided_while_a_job_is_being_launched_starts_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an array the next task is placed while the launch of the one before has yet to return."""

    async def run() -> None:
        cluster = Cluster(tmp_path, _Even())
        engine, store = cluster.engine, cluster.store
        returns, asked, may_write = asyncio.Event(), asyncio.Event(), asyncio.Event()
        may_write.set()
        launch, write = engine.launch, store.write

        async def launch_slowly(gang: Sequence[TaskLaunch]) -> None:
            await launch(gang)
            await returns.wait()

        async def write_slowly(work: Callable[[Connection], Any]) -> Any:
            asked.set()
            await may_write.wait()
            return await write(work)

        monkeypatch.setattr(engine, "launch", launch_slowly)
        await cluster.controller.start()
        await _hand_in(store, job_of("array", "true", instances=2, extras=_ONE_AT_A_TIME))
        await _until(lambda: len(engine.running) == 1)
        await _until(lambda: cluster.controller._pass_began is None)
        monkeypatch.setattr(store, "write", write_slowly)
        may_write.clear()
        asked.clear()
        engine.end(engine.running[0], 0)
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        returns.set()
        await asyncio.sleep(0.05)
        assert len(engine.launches) == 1
        may_write.set()
        await _until(lambda: len(engine.launches) == 2)
        assert not engine.unwritten
        await cluster.controller.close()
        store.close()

    asyncio.run(run())


def test_the_next_tasks_of_an_array_start_at_once_though_others_are_not_seen_to_run_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are those launched again: in a large array some always are on their way."""
    monkeypatch.setattr(launcher, "_FIRST_PAUSE_S", 10 * DEADLINE_S)

    async def run() -> None:
        cluster = Cluster(tmp_path, _Even())
        engine = cluster.engine
        told: list[str] = []
        launch, observe = engine.launch, engine.observe

        async def launch_noting(gang: Sequence[TaskLaunch]) -> None:
            told.extend(task.uid for task in gang)
            await launch(gang)

        async def observe_slowly(uids: Sequence[str]) -> dict[str, Observation]:
            return await observe([uid for uid in uids if uid != told[0]])

        monkeypatch.setattr(engine, "launch", launch_noting)
        monkeypatch.setattr(engine, "observe", observe_slowly)
        await cluster.controller.start()
        two_at_a_time = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 2}}
        await _hand_in(cluster.store, job_of("array", "true", instances=5, extras=two_at_a_time))
        for number in range(1, 5):
            await _until(lambda number=number: len(engine.launches) == min(number + 1, 5))  # type: ignore[misc]
            await cluster.quiet()
            engine.end(told[number], 0)
        assert len(told) == len(set(told)) == 5
        await cluster.controller.close()
        cluster.store.close()

    asyncio.run(run())


def test_what_could_not_be_launched_is_tried_anew_also_when_its_tasks_had_been_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The row of the first try of a task must not be in the way of the next first try."""
    monkeypatch.setattr(reconciler, "_FIRST_PUT_OFF_S", 0.01)

    async def run() -> None:
        cluster = Cluster(tmp_path, _Even())
        engine, store = cluster.engine, cluster.store
        launch = engine.launch
        # The first refusal is the task's own, and the task is retried; the second may pass.
        refusals = [LaunchFailed("No.", transient=False), LaunchFailed("Not now.")]

        async def launch_at_last(gang: Sequence[TaskLaunch]) -> None:
            if refusals:
                raise refusals.pop(0)
            await launch(gang)

        monkeypatch.setattr(engine, "launch", launch_at_last)
        await cluster.controller.start()
        text = job_of("array", "true", extras=_ONE_AT_A_TIME)
        text["taskRoles"]["main"]["taskRetryCount"] = 1
        await _hand_in(store, text)
        while not engine.running:
            await asyncio.sleep(0.01)
            cluster.time_passes()
        await cluster.quiet()
        await cluster.check()
        (one,) = await store.read(jobs.active_jobs)
        assert [(task.task_attempt, task.sub_state) for task in one.tasks] == [(0, "AttemptRunning")]
        await cluster.controller.close()
        store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "starts over" not in caplog.text


async def _hand_in(store: Store, text: dict[str, Any]) -> None:
    written = json.dumps(text)
    need = encode(request_of(read_job(written), "ann"))
    new = NewJob("ann", str(text["name"]), "default", written, written, now_ms(), need=need)
    await store.write(lambda conn: jobs.insert_jobs(conn, [new]))


_ONE_AT_A_TIME = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 1}}


async def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)
