"""The controller's work for one task of an array does not depend on the number of ended tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paicluster.controller import transitions
from paicluster.controller.job_record import COMPLETED, PREPARING, RUNNING, JobRecord
from paicluster.controller.launch_spec import LaunchSettings, build_launch
from paicluster.controller.launcher import Launcher
from paicluster.controller.reconcile_changes import Changes
from paicluster.engines.interface import TaskLaunch
from support.job_records import add_task, job_record
from support.server_fixture import job as job_of
from support.work_counter import work_of

SETTINGS = LaunchSettings(
    base_environment={},
    rest_server_uri="http://nowhere",
    sources=Path(),
    keep_submitted_environment=False,
    unseal=lambda sealed, framework: sealed,
    job_token=lambda row: "token",
)
LIVE = 4


def array(ended: int, state: str, *, waiting: int = 0) -> JobRecord:
    """An array with this many succeeded tasks, some in this state, and some not placed yet."""
    work = job_of("array", "true", instances=10_000, extras={"gangAllocation": False})
    record = job_record(work, total_tasks=10_000)
    for index in range(ended + LIVE + waiting):
        over = index < ended
        placed = index < ended + LIVE
        add_task(
            record,
            index,
            uid=f"t{index}",
            sub_state=COMPLETED if over else state,
            node="here" if placed else None,
            ip="127.0.0.1" if placed else None,
            exit_code=0 if over else None,
            completed_ms=index if over else None,
        )
    return record


def test_completion_check_does_not_depend_on_ended_tasks() -> None:
    def work(ended: int) -> int:
        record = array(ended, RUNNING)
        return work_of(lambda: transitions.advance(record, Changes(), 0))

    work(50)  # fills caches
    assert work(5000) == work(50)


def test_launch_does_not_depend_on_ended_tasks() -> None:
    def work(ended: int) -> int:
        record = array(ended, PREPARING)
        return work_of(lambda: build_launch(record, SETTINGS, record.to_launch))

    work(50)  # fills caches
    assert work(5000) == work(50)
    environment = build_launch(array(5000, PREPARING), SETTINGS, ["t5000"])[0].shared_environment
    assert sum(map(len, environment.values())) < 2000


def test_delegation_does_not_depend_on_externally_queued_tasks() -> None:
    def work(waiting: int) -> int:
        record = array(0, RUNNING, waiting=waiting)
        return work_of(lambda: build_launch(record, SETTINGS, [f"t{LIVE}"]))

    work(50)  # fills caches
    assert work(5000) == work(50)


def test_task_stopped_during_delegation_is_skipped() -> None:
    record = array(0, PREPARING)
    launched = []

    class Scheduling:
        self_scheduling = frozenset({"default"})

        def engine_of(self, job: object, vc: str) -> str:
            return "slurm"

        async def launch(self, engine: str, gang: Sequence[TaskLaunch], certain: object) -> None:
            launched.extend(task.uid for task in gang)
            record.tasks["t2"] = replace(record.tasks["t2"], sub_state=COMPLETED, exit_code=-210)

    async def launch_all() -> None:
        nothing: Any = None
        engines: Any = Scheduling()
        Launcher(nothing, engines, SETTINGS, hint=launched.append).launch(record)
        assert record.launching is not None
        await record.launching

    asyncio.run(launch_all())
    assert launched == ["t0", "t1", "t3"]
