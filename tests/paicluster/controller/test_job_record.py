"""Records of active jobs: what is launched, retried and counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paicluster.controller.allocation_records import AllocationOwner
from paicluster.controller.job_record import JobRecord, placement_of, ports_of, ran_long
from paicluster.scheduler.resource_requests import Resources, decode
from paiprotocol.jobs.completion import TaskOutcome
from paiprotocol.jobs.retries import RetryCounts
from paiprotocol.jobs.task_environment import TaskPlacement
from support.job_records import add_task, array, gang, job_record
from support.server_fixture import job as job_of
from support.server_fixture import role

PREPARING = "AttemptPreparing"
RUNNING = "AttemptRunning"
ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"
LONG_MS = 600_000


@pytest.mark.parametrize(
    ("launched_ms", "completed_ms", "expected"),
    [
        (1, 1 + LONG_MS, True),
        (1, LONG_MS, False),
        (None, LONG_MS, False),
        (0, LONG_MS, True),
        (1, None, False),
        (-LONG_MS, None, True),
    ],
)
def test_attempt_of_ten_minutes_made_progress(
    launched_ms: int | None, completed_ms: int | None, expected: bool
) -> None:
    assert ran_long(launched_ms, completed_ms) is expected


def test_tasks_to_launch_are_those_not_passed_to_the_engine() -> None:
    record = gang(tasks=4, sub_state=PREPARING)
    add_task(record, 1, sub_state=RUNNING)
    add_task(record, 2, sub_state=COMPLETED, exit_code=0)
    record.launched = {"main-3"}
    assert record.to_launch == ["main-0"]


def test_waiting_tasks_of_a_gang_are_launched_again_together() -> None:
    record = gang(tasks=3, sub_state=PREPARING)
    add_task(record, 1, sub_state=RUNNING)
    record.launch_again("main-0")
    assert not record.to_relaunch, "it was not launched before"
    record.launched = {"main-0", "main-1", "main-2"}
    record.launch_again("main-0")
    assert (record.launched, record.to_relaunch) == ({"main-1"}, {"main-0", "main-2"})


def test_task_of_an_array_is_launched_again_alone() -> None:
    record = array(tasks=2)
    for index in range(2):
        add_task(record, index, sub_state=PREPARING)
    record.launched = {"main-0", "main-1"}
    record.launch_again("main-0")
    assert (record.launched, record.to_relaunch) == ({"main-1"}, {"main-0"})


@pytest.mark.parametrize(
    ("exit_code", "stop_requested", "expected"),
    [(None, True, True), (None, False, False), (255, True, False)],
)
def test_job_is_preempted_while_its_tasks_stop_without_an_outcome(
    exit_code: int | None, stop_requested: bool, expected: bool
) -> None:
    record = gang(tasks=2, exit_code=exit_code)
    add_task(record, 0, stop_requested=stop_requested)
    assert record.preempting is expected


def unlaunched(**columns: object) -> JobRecord:
    record = gang(tasks=2, **{"sub_state": PREPARING, **columns})
    record.launch_error = "Not now."
    add_task(record, 0, sub_state=COMPLETED, exit_code=-120)
    return record


def test_attempt_is_unlaunched_when_every_end_is_a_failed_launch() -> None:
    assert unlaunched().unlaunched
    without_error = unlaunched()
    without_error.launch_error = ""
    assert not without_error.unlaunched
    assert not unlaunched(sub_state=RUNNING).unlaunched
    assert not unlaunched(execution_type="STOP").unlaunched
    for columns in ({"exit_code": 1}, {"exit_code": -120, "stop_requested": True}):
        ended = unlaunched()
        add_task(ended, 1, sub_state=COMPLETED, **columns)
        assert not ended.unlaunched
    none_ended = gang(sub_state=PREPARING)
    none_ended.launch_error = "Not now."
    assert not none_ended.unlaunched


def test_what_the_scheduler_and_the_allocations_know_of_a_job() -> None:
    text = job_of("work", "true", instances=3, cpu=2, memory_mb=8, gpu=1)
    text["taskRoles"]["worker"] = role("true", cpu=4, memory_mb=99)
    record = job_record(text, priority="oppo", vc="lab")
    record.minimum = Resources(3, 16)
    assert record.resources_of("main") == Resources(3, 16, 1)
    assert record.resources_of("worker") == Resources(4, 99, 0)
    assert record.owner() == AllocationOwner("lab", "ada", True)
    queued, pending = record.queued_job(), record.pending_job()
    assert (queued.job_id, queued.vc, queued.user, queued.priority_class) == (1, "lab", "ada", "oppo")
    assert (pending.id, pending.vc, pending.username, pending.priority) == (1, "lab", "ada", "oppo")
    assert decode(pending.resource_request).resources == queued.request
    assert [(one.role, one.instances, one.each) for one in queued.request.roles] == [
        ("main", 3, Resources(3, 16, 1)),
        ("worker", 1, Resources(4, 99, 0)),
    ]
    assert not job_record(text).owner().preemptible
    assert job_record(text).queued_job().priority_class == "test"


def test_retry_counts_are_those_of_the_row() -> None:
    record = gang()
    record.row = replace(record.row, retries=5, retries_user=3, platform_streak=2)
    assert record.retry_counts() == RetryCounts(5, 3, 2)


def test_outcomes_are_those_of_tasks_that_are_not_retried() -> None:
    record = array(tasks=4)
    add_task(record, 0, sub_state=COMPLETED, exit_code=255, completed_ms=7)
    add_task(record, 1, sub_state=ATTEMPT_COMPLETED, exit_code=255, completed_ms=8)
    add_task(record, 2, sub_state=COMPLETED, exit_code=None, completed_ms=None)
    add_task(record, 3)
    assert record.outcomes() == [TaskOutcome("main", 0, 255, 7), TaskOutcome("main", 2, 0, 0)]


def test_peers_are_the_gang_or_all_placed_tasks() -> None:
    whole = gang(tasks=2)
    add_task(whole, 0, sub_state=COMPLETED, exit_code=0, node=None)
    assert [task.task_index for task in whole.peers(())] == [0, 1]
    some = array(tasks=4)
    add_task(some, 0)
    add_task(some, 1, node=None)
    add_task(some, 2, node=None)
    add_task(some, 3, sub_state=COMPLETED, exit_code=0)
    assert [task.task_index for task in some.peers({"main-1"})] == [0, 1]


@pytest.mark.parametrize(
    ("columns", "is_retried", "delay_s"),
    [
        ({"exit_code": 255}, True, 0.0),
        ({"exit_code": 255, "retries_total": 1, "retries_accountable": 1}, True, 1.0),
        ({"exit_code": 255, "retries_total": 2, "retries_accountable": 2}, False, 0.0),
        ({"exit_code": -1001, "retries_total": 3}, True, 8.0),
        ({"exit_code": -1001, "retries_total": 20}, False, 0.0),
        ({"exit_code": None}, False, 0.0),
        ({"exit_code": -1003, "stop_requested": True}, True, 0.0),
        ({"exit_code": 255, "stop_requested": True}, False, 0.0),
        (
            {
                "exit_code": 255,
                "retries_total": 1,
                "retries_accountable": 1,
                "launched_ms": 0,
                "completed_ms": LONG_MS,
            },
            True,
            0.0,
        ),
    ],
)
def test_retries_of_a_task_alone(columns: dict[str, object], is_retried: bool, delay_s: float) -> None:
    record = array(task_retries=2)
    task = add_task(record, sub_state=COMPLETED, **columns)
    assert record.is_to_be_retried(task) is is_retried
    assert record.retry_delay_s(task) == 0.0, "it is not retried"
    if is_retried:
        assert record.retry_delay_s(replace(task, sub_state=ATTEMPT_COMPLETED)) == delay_s


def test_task_of_a_gang_is_never_retried_alone() -> None:
    record = gang()
    assert not record.is_to_be_retried(add_task(record, stop_requested=True, exit_code=-1003))


def test_tasks_to_start_are_the_unstarted_and_those_to_retry() -> None:
    text = job_of("work", "true", instances=3, extras={"gangAllocation": False})
    text["taskRoles"]["worker"] = role("true", instances=2)
    record = job_record(text)
    add_task(record, 0)
    assert record.unstarted() == ((1, 2), (0, 1))
    add_task(record, 0, sub_state=ATTEMPT_COMPLETED, exit_code=1)
    add_task(record, 0, role="worker", sub_state=ATTEMPT_COMPLETED, exit_code=1)
    assert record.unstarted() == ((0, 1, 2), (0, 1))
    record.backing_off = {"main-0", "worker-0"}
    assert record.unstarted() == ((1, 2), (1,))
    record.backing_off = {"main-0"}
    assert record.unstarted() == ((1, 2), (0, 1))


def test_next_attempt_starts_without_tasks() -> None:
    record = gang(tasks=2)
    record.launched, record.to_relaunch = {"main-0"}, {"main-1"}
    record.forget_tasks()
    assert (len(record.tasks), record.launched, record.to_relaunch) == (0, set(), set())
    assert record.unstarted() == ((0, 1),)


def test_placement_of_a_task_as_far_as_it_is_known() -> None:
    record = gang()
    placed = add_task(record, ports='{"http": [5, 6]}', gpus="[1, 3]", task_attempt=2)
    assert ports_of(placed) == {"http": (5, 6)}
    assert placement_of(placed) == TaskPlacement(
        "main", 0, "127.0.0.1", {"http": (5, 6)}, "main-0", (1, 3), 2
    )
    unplaced = add_task(record, ip=None, ports=None, gpus=None)
    assert placement_of(unplaced) == TaskPlacement("main", 0, "", {}, "main-0", (), 0)
