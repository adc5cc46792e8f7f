"""Random loads, faults and preemptions through the controller; allocations must add up after every step."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from paicluster.controller.reconcile_changes import Changes
from paicluster.controller.reconciler import Controller
from paicluster.controller.timings import Backoff, Timings
from paicluster.engines.interface import LaunchFailed, Observation, TaskLaunch
from paicluster.engines.router import EngineRouter
from paicluster.scheduler.resource_requests import encode, request_of
from paicluster.store import Store, jobs
from paicluster.store.jobs import NewJob
from paiprotocol.jobs import read_job
from support.fault_injection import (
    DEADLINE_S,
    Cluster,
    check_finished_jobs,
    check_gangs_and_arrays,
    now_ms,
)
from support.server_fixture import job as job_of


def seeds(count: int) -> list[Any]:
    """Of several random runs, the first is quick enough for every test run."""
    return [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(count)]


_NEVER_S = 10 * DEADLINE_S
_NEVER = Backoff(_NEVER_S, _NEVER_S)
_AT_ONCE = Backoff(0.001, 0.01)
# Timers fire when the test says so, and not during a check.
_QUIET = Timings(launch_backoff=_NEVER, report_reason_after_s=_NEVER_S)
_QUARANTINED_FOR_LONG = Timings(quarantine_backoff=_NEVER, reload_backoff=_AT_ONCE)


@pytest.mark.parametrize("seed", seeds(8))
def test_allocations_add_up_under_random_faults(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_run_steps(Cluster(tmp_path, random.Random(seed), _QUIET)))
    assert "Reconcile failed" not in caplog.text


@pytest.mark.parametrize("seed", seeds(4))
def test_allocations_add_up_when_jobs_cannot_be_written(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Changes.write
    timings = replace(_QUIET, quarantine_backoff=_NEVER, reload_backoff=_AT_ONCE)

    async def drive() -> None:
        cluster = Cluster(tmp_path, random.Random(seed), timings)

        def write_or_fail(changes: Changes, conn: Connection, now_ms: int) -> list[str]:
            written = write(changes, conn, now_ms)
            if not cluster.unwritable.isdisjoint(changes.split_by_job(cluster.controller._active.job_of)):
                raise RuntimeError("unwritable")
            return written

        monkeypatch.setattr(Changes, "write", write_or_fail)
        await _run_steps(cluster, with_unwritable_jobs=True)

    asyncio.run(drive())
    assert "quarantined after an unexpected error" in caplog.text
    assert "Cannot load jobs" not in caplog.text


def test_job_whose_tasks_cannot_be_stopped_does_not_block_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        cluster = Cluster(tmp_path, random.Random(1), _QUARANTINED_FOR_LONG)
        engine = cluster.engine
        await cluster.controller.start()
        try:
            while not engine.running:
                await cluster.submit()
                await cluster.wait_idle()
            unstoppable = engine.running[0]
            engine.unstoppable.add(unstoppable)
            (task,) = await cluster.store.read(lambda conn: [jobs.get_task(conn, unstoppable)])
            assert task is not None
            await cluster.store.write(lambda conn: jobs.stop(conn, task.job_id))
            await _until(lambda: task.job_id in cluster.controller._quarantine.excluded)
            before = len(engine.launches)
            while len(engine.launches) == before:
                await cluster.submit()
                await cluster.wait_idle()
                await cluster.check()
            engine.unstoppable.clear()
            cluster.controller._quarantine.retry_now(task.job_id)
            await _until(lambda: unstoppable in engine.stop_requested)
        finally:
            await cluster.controller.close()
            cluster.store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "Cannot load jobs" not in caplog.text


def test_stop_is_repeated_that_a_full_disk_prevented(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        cluster = Cluster(tmp_path, random.Random(1))
        engine = cluster.engine
        await cluster.controller.start()
        try:
            while not engine.running:
                await cluster.submit()
                await cluster.wait_idle()
            stopped = engine.running[0]
            (task,) = await cluster.store.read(lambda conn: [jobs.get_task(conn, stopped)])
            assert task is not None
            engine.is_full = True
            await cluster.store.write(lambda conn: jobs.stop(conn, task.job_id))
            await _until(lambda: "will be asked again" in caplog.text)
            engine.is_full = False
            await _until(lambda: stopped in engine.stop_requested)
        finally:
            await cluster.controller.close()
            cluster.store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "reloading state" not in caplog.text


async def _run_steps(cluster: Cluster, *, with_unwritable_jobs: bool = False) -> None:
    dice = cluster.dice
    await cluster.controller.start()
    try:
        for _ in range(70):
            if with_unwritable_jobs and cluster.ids and dice.random() < 0.3:
                cluster.unwritable ^= {dice.choice(cluster.ids[-6:])}
            action = dice.random()
            if action < 0.4:
                for _ in range(dice.randrange(1, 4)):
                    await cluster.submit()
            elif action < 0.7:
                cluster.end_some()
            elif action < 0.78:
                cluster.lose_one()
            elif action < 0.86 and cluster.ids:
                await cluster.stop_some()
            elif action < 0.93:
                cluster.let_time_pass()
            else:
                await cluster.restart()
            if dice.random() < 0.8:  # else the next action comes in the middle of this one
                await cluster.wait_idle()
                await cluster.check()
                await cluster.store.read(check_gangs_and_arrays)
        cluster.unwritable.clear()
        await _finish_all(cluster)
    finally:
        await cluster.controller.close()
        cluster.store.close()


async def _finish_all(cluster: Cluster) -> None:
    """When every task succeeds, every job that can run finishes, and no allocation is left."""
    for _ in range(400):
        await cluster.wait_idle()
        await cluster.check()
        for uid in cluster.engine.running:
            cluster.engine.end(uid, 0)
        cluster.let_time_pass()
        await cluster.wait_idle()
        queue, controller = cluster.controller._queue, cluster.controller
        none_startable = controller._active.records.keys() <= {*queue._unschedulable, *queue._blocked}
        if none_startable and not controller._wakeups.timers and not len(queue.pending):
            break
    else:
        raise AssertionError("some jobs neither run nor start")
    await cluster.check()
    allocations = cluster.controller._active.allocations
    assert not allocations._by_task and not allocations._ports and not cluster.engine.running
    left = await cluster.store.read(jobs.active_jobs)
    # Only unschedulable jobs are pending, and those that depend on them.
    assert {one.job.id for one in left} == {
        *cluster.controller._queue._unschedulable,
        *cluster.controller._queue._blocked,
    }
    await cluster.store.read(lambda conn: check_finished_jobs(conn, cluster.ids))
    started = await cluster.store.read(
        lambda conn: [
            job_id
            for job_id in cluster.ids
            if any(task.attempt == 0 for task in jobs.tasks_of(conn, job_id, 0))
        ]
    )
    for job_id in started:
        events = await cluster.store.read(lambda conn, job_id=job_id: jobs.events_of(conn, job_id))  # type: ignore[misc]
        notices = [event for event in events if event.reason == "LimitsNotEnforced"]
        assert len(notices) == 1, "one notice for each job"


class _WatchedCommit:
    """The commit of a launch; ``is_awaited`` is set when the launch waits for it."""

    def __init__(self, committed: Awaitable[bool], is_awaited: asyncio.Event):
        self._committed = committed
        self._is_awaited = is_awaited

    def __await__(self) -> Generator[Any, Any, bool]:
        self._is_awaited.set()
        return self._committed.__await__()


def _watch_second_task(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when the launch of an array's second task waits for its commit."""
    is_awaited = asyncio.Event()
    launch = EngineRouter.launch

    async def launch_watched(
        router: EngineRouter,
        name: str,
        gang: Sequence[TaskLaunch],
        committed: Awaitable[bool] | None = None,
    ) -> None:
        if committed is not None and gang[0].environment["PAI_TASK_INDEX"] == "1":
            committed = _WatchedCommit(committed, is_awaited)
        await launch(router, name, gang, committed)

    monkeypatch.setattr(EngineRouter, "launch", launch_watched)
    return is_awaited


class _FixedRandom(random.Random):
    def random(self) -> float:
        return 0.5


def test_task_placed_during_a_launch_starts_only_once_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next task of an array is placed while the launch of the previous one has not returned."""

    async def run() -> None:
        cluster = Cluster(tmp_path, _FixedRandom())
        engine, store = cluster.engine, cluster.store
        may_return, write_called, may_write = asyncio.Event(), asyncio.Event(), asyncio.Event()
        may_write.set()
        launch, write = engine.launch, store.write

        async def launch_slowly(gang: Sequence[TaskLaunch]) -> None:
            await launch(gang)
            await may_return.wait()

        async def write_slowly(work: Callable[[Connection], Any]) -> Any:
            write_called.set()
            await may_write.wait()
            return await write(work)

        monkeypatch.setattr(engine, "launch", launch_slowly)
        commit_awaited = _watch_second_task(monkeypatch)
        await cluster.controller.start()
        await _submit(store, job_of("array", "true", instances=2, extras=_ONE_AT_A_TIME))
        await _until(lambda: len(engine.running) == 1)
        await _until(lambda: cluster.controller._reconcile_started is None)
        monkeypatch.setattr(store, "write", write_slowly)
        may_write.clear()
        write_called.clear()
        engine.end(engine.running[0], 0)
        await asyncio.wait_for(write_called.wait(), DEADLINE_S)
        may_return.set()
        await _until(lambda: commit_awaited.is_set() or len(engine.launches) > 1)
        assert len(engine.launches) == 1
        may_write.set()
        await _until(lambda: len(engine.launches) == 2)
        assert not engine.launched_uncommitted
        await cluster.controller.close()
        store.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_written", [True, False])
def test_task_placed_during_a_launch_waits_for_its_own_commit_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """After a failure each job is committed on its own: the commit of another one says nothing about it."""

    async def run() -> None:
        cluster = Cluster(tmp_path, _FixedRandom())
        engine, store, controller = cluster.engine, cluster.store, cluster.controller
        may_return, write_called, may_write = asyncio.Event(), asyncio.Event(), asyncio.Event()
        launch, write = engine.launch, store.write

        async def launch_slowly(gang: Sequence[TaskLaunch]) -> None:
            await launch(gang)
            await may_return.wait()

        async def write_slowly(work: Callable[[Connection], Any]) -> Any:
            if not _placed(controller, "array", 1):
                return await write(work)
            write_called.set()
            await may_write.wait()
            if not is_written:
                raise RuntimeError("unwritable")
            return await write(work)

        monkeypatch.setattr(engine, "launch", launch_slowly)
        commit_awaited = _watch_second_task(monkeypatch)
        await controller.start()
        assert controller._task is not None
        controller._task.cancel()  # from here on the test itself reconciles
        await _submit(store, job_of("array", "true", instances=2, extras=_ONE_AT_A_TIME))
        await controller._reconcile(isolated=False)
        await _until(lambda: len(engine.running) == 1)
        await _submit(store, job_of("other", "true"))
        engine.end(engine.running[0], 0)
        monkeypatch.setattr(store, "write", write_slowly)
        reconcile = asyncio.create_task(controller._reconcile(isolated=True))
        await asyncio.wait_for(write_called.wait(), DEADLINE_S)
        may_return.set()
        await _until(lambda: commit_awaited.is_set() or len(engine.launches) > 1)
        assert len(engine.launches) == 1
        may_write.set()
        if is_written:
            await reconcile
            await _until(lambda: len(engine.launches) == 3)
        else:
            with pytest.raises(RuntimeError, match="unwritable"):
                await reconcile
            await controller._active.clear()
            assert len(engine.launches) == 1
        assert not engine.launched_uncommitted
        await controller.close()
        store.close()

    asyncio.run(run())


def _placed(controller: Controller, name: str, index: int) -> bool:
    return any(
        task.task_index == index
        for record in controller._active.records.values()
        if record.row.name == name
        for task in record.live
    )


def test_task_placed_while_a_launch_is_abandoned_starts_without_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        cluster = Cluster(tmp_path, _FixedRandom(), Timings(sweep_interval_s=_NEVER_S))
        engine, controller = cluster.engine, cluster.controller
        launch, stop = engine.launch, engine.stop
        is_abandoning, may_stop = asyncio.Event(), asyncio.Event()

        async def launch_or_fail(gang: Sequence[TaskLaunch]) -> None:
            if not is_abandoning.is_set():
                raise LaunchFailed("No.", transient=False)
            await launch(gang)

        async def stop_slowly(uids: Sequence[str], grace_s: float) -> None:
            is_abandoning.set()
            await may_stop.wait()
            await stop(uids, grace_s)

        monkeypatch.setattr(engine, "launch", launch_or_fail)
        monkeypatch.setattr(engine, "stop", stop_slowly)
        await controller.start()
        text = job_of("array", "true", instances=2, extras=_ONE_AT_A_TIME)
        text["taskRoles"]["main"]["completion"] = {"minFailedInstances": 2}
        await _submit(cluster.store, text)
        await asyncio.wait_for(is_abandoning.wait(), DEADLINE_S)
        (record,) = controller._active.records.values()
        (first,) = record.live
        await stop([first.uid], 0)
        await _until(lambda: _placed(controller, "array", 1))
        may_stop.set()
        await _until(lambda: len(engine.running) == 1)
        await controller.close()
        cluster.store.close()

    asyncio.run(run())


def test_next_array_tasks_start_while_others_are_not_yet_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those are not launched again: some tasks of a large array are always starting."""

    async def run() -> None:
        cluster = Cluster(tmp_path, _FixedRandom(), Timings(relaunch_backoff=_NEVER))
        engine = cluster.engine
        launched: list[str] = []
        launch, observe = engine.launch, engine.observe

        async def launch_recording(gang: Sequence[TaskLaunch]) -> None:
            launched.extend(task.uid for task in gang)
            await launch(gang)

        async def observe_slowly(uids: Sequence[str]) -> dict[str, Observation]:
            return await observe([uid for uid in uids if uid != launched[0]])

        monkeypatch.setattr(engine, "launch", launch_recording)
        monkeypatch.setattr(engine, "observe", observe_slowly)
        await cluster.controller.start()
        two_at_a_time = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 2}}
        await _submit(cluster.store, job_of("array", "true", instances=5, extras=two_at_a_time))
        for number in range(1, 5):
            await _until(lambda number=number: len(engine.launches) == min(number + 1, 5))  # type: ignore[misc]
            await cluster.wait_idle()
            engine.end(launched[number], 0)
        assert len(launched) == len(set(launched)) == 5
        await cluster.controller.close()
        cluster.store.close()

    asyncio.run(run())


def test_failed_launch_is_retried_after_a_task_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The row of a task's first attempt must not conflict with the next first attempt."""

    async def run() -> None:
        cluster = Cluster(tmp_path, _FixedRandom(), Timings(launch_backoff=Backoff(0.01, 0.02)))
        engine, store = cluster.engine, cluster.store
        launch = engine.launch
        # The first failure counts against the task, which is retried; the second is transient.
        failures = [LaunchFailed("No.", transient=False), LaunchFailed("Not now.")]

        async def launch_or_fail(gang: Sequence[TaskLaunch]) -> None:
            if failures:
                raise failures.pop(0)
            await launch(gang)

        monkeypatch.setattr(engine, "launch", launch_or_fail)
        await cluster.controller.start()
        text = job_of("array", "true", extras=_ONE_AT_A_TIME)
        text["taskRoles"]["main"]["taskRetryCount"] = 1
        await _submit(store, text)
        while not engine.running:
            await asyncio.sleep(0.01)
            cluster.let_time_pass()
        await cluster.wait_idle()
        await cluster.check()
        (one,) = await store.read(jobs.active_jobs)
        assert [(task.task_attempt, task.sub_state) for task in one.tasks] == [(0, "AttemptRunning")]
        await cluster.controller.close()
        store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert "Reconcile failed" not in caplog.text


async def _submit(store: Store, text: dict[str, Any]) -> None:
    spec = json.dumps(text)
    request = encode(request_of(read_job(spec), "ann"))
    new = NewJob("ann", str(text["name"]), "default", spec, spec, now_ms(), resource_request=request)
    await store.write(lambda conn: jobs.insert_jobs(conn, [new]))


_ONE_AT_A_TIME = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 1}}


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
