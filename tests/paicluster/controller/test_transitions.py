"""State transitions of a job: what each writes, asks to stop, and reports."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paicluster.controller import transitions
from paicluster.controller.exit_classification import TaskExit
from paicluster.controller.job_record import JobRecord
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.controller.transitions import NextQueue, next_queue
from paicluster.engines.interface import Placement
from paiprotocol.jobs.completion import Verdict
from support.job_records import add_task, array, gang, job_record
from support.job_transitions import (
    ATTEMPT_COMPLETED,
    COMPLETED,
    DELETING,
    FAILED,
    PENDING,
    PREPARING,
    RUNNING,
    SUCCEEDED,
    advanced,
    attempt_of,
    end,
)
from support.server_fixture import job as job_of
from support.server_fixture import role

# -- preemption, dependencies ---------------------------------------------------------------------


def test_preemption_stops_live_tasks_once() -> None:
    record = gang(tasks=3, priority="oppo")
    add_task(record, 0, sub_state=COMPLETED, exit_code=0)
    add_task(record, 1, stop_requested=True)
    changes = Changes()
    transitions.preempt(record, "eve~urgent", changes)
    assert changes.stop == ["main-2"]
    assert changes.task_columns == {"main-2": {"uid": "main-2", "job_id": 1, "stop_requested": True}}
    message = "The job is preempted by eve~urgent, whose quota includes the resources it uses."
    assert changes.events == [
        Event(1, "Warning", "Preempted", message, source="default-scheduler", pending=True)
    ]


def test_job_whose_dependency_failed_ends_unstarted() -> None:
    record = gang(sub_state=PENDING, launched_ms=None)
    changes = Changes()
    transitions.fail_unstarted(record, "The job a failed.", changes, 1000)
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, -1100, 1000)
    attempt = attempt_of(changes)
    assert (attempt.sub_state, attempt.exit_code, attempt.exit_type) == (COMPLETED, -1100, "Failed")
    assert (attempt.diagnostics, attempt.trigger_message, attempt.completed_ms) == (
        "The job a failed.",
        "",
        1000,
    )
    assert (attempt.trigger_role, attempt.trigger_index, attempt.runtime_exit) == (None, None, None)
    assert changes.events == [Event(1, "Warning", "DependencyNeverSatisfied", "The job a failed.")]


# -- observations ---------------------------------------------------------------------------------


def test_external_placement_is_written_once() -> None:
    record = gang(sub_state=PREPARING)
    placement = Placement("n1", "10.0.0.9", {"http": (5,)}, (2, 3))
    changes = Changes()
    transitions.task_placed(record, "main-0", placement, changes)
    task = record.tasks["main-0"]
    assert (task.node, task.ip, task.ports, task.gpus) == ("n1", "10.0.0.9", '{"http": [5]}', "[2, 3]")
    assert changes.task_columns["main-0"]["node"] == "n1"
    again = Changes()
    transitions.task_placed(record, "main-0", placement, again)
    assert not again


def test_first_started_task_starts_the_job() -> None:
    record = gang(tasks=2, sub_state=PREPARING, launched_ms=None)
    record.launch_error, record.launch_failures = "Not now.", 3
    changes = Changes()
    transitions.task_started(record, "main-0", 20, changes)
    transitions.task_started(record, "main-0", 25, changes)
    transitions.task_started(record, "main-1", 30, changes)
    started = [(task.sub_state, task.launched_ms) for task in record.tasks.values()]
    assert started == [(RUNNING, 20), (RUNNING, 30)]
    assert (record.row.sub_state, record.row.launched_ms) == (RUNNING, 20)
    assert (attempt_of(changes).sub_state, attempt_of(changes).launched_ms) == (RUNNING, 20)
    assert (record.launch_error, record.launch_failures) == ("", 0)


def test_task_that_ends_unseen_has_started_first() -> None:
    record = gang(tasks=2, sub_state=PREPARING, launched_ms=None)
    changes = Changes()
    transitions.task_ended(record, "main-0", FAILED, 20, 15, changes, lost=False)
    task = record.tasks["main-0"]
    assert (task.sub_state, task.launched_ms, task.completed_ms) == (COMPLETED, 20, 20)
    assert (task.exit_code, task.lost, json.loads(task.exit_info or "")) == (255, False, FAILED.info)
    assert record.row.launched_ms == 20
    transitions.task_ended(record, "main-1", FAILED, None, 40, changes, lost=True)
    unstarted = record.tasks["main-1"]
    assert (unstarted.completed_ms, unstarted.lost) == (40, True)


def test_task_of_an_array_is_to_be_retried() -> None:
    record = array(task_retries=1)
    add_task(record)
    end(record, FAILED)
    assert record.tasks["main-0"].sub_state == ATTEMPT_COMPLETED
    assert record.row.sub_state == RUNNING


@pytest.mark.parametrize(
    ("execution_type", "stop_requested", "exit_code", "expected"),
    [
        ("START", False, None, None),
        ("STOP", False, None, -210),
        ("START", True, None, -1003),
        ("START", True, -210, -210),
        ("START", True, 255, -220),
        ("START", True, 0, -220),
    ],
)
def test_exit_code_of_a_stopped_task(
    execution_type: str, stop_requested: bool, exit_code: int | None, expected: int | None
) -> None:
    record = gang(execution_type=execution_type, exit_code=exit_code)
    task = add_task(record, stop_requested=stop_requested)
    assert transitions.stop_code_of(record, task) == expected


# -- the end of an attempt ------------------------------------------------------------------------


def test_succeeded_job() -> None:
    record = gang()
    changes = end(record, SUCCEEDED)
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, 0, 50)
    attempt = attempt_of(changes)
    assert (attempt.sub_state, attempt.exit_code, attempt.exit_type) == (COMPLETED, 0, "Succeeded")
    assert attempt.trigger_message == (
        "SucceededTaskCount 1 has reached MinSucceededTaskCount 1 in the TaskRole"
    )
    assert (attempt.trigger_role, attempt.trigger_index) == ("main", 0)
    assert (attempt.diagnostics, attempt.runtime_exit, attempt.completed_ms) == ("Pod succeeded", None, 50)
    assert changes.ended_attempts == [(1, 0)]
    assert not changes.events and not changes.stop
    assert changes.job_columns[1] == {
        "exit_code": 0,
        "sub_state": COMPLETED,
        "completed_ms": 50,
        "failed_tasks": 0,
        "retry_at_ms": None,
    }


def test_failure_stops_the_other_tasks_and_waits_for_them() -> None:
    record = gang(tasks=4)
    add_task(record, 2, stop_requested=True)
    add_task(record, 3, sub_state=COMPLETED, exit_code=0, completed_ms=5)
    error = TaskExit(255, {"caughtException": "The program raised KeyError.", "originUserExitCode": 1})
    changes = end(record, error, index=1)
    assert (record.row.sub_state, record.row.exit_code) == (DELETING, 255)
    assert changes.stop == ["main-0"]
    assert [task.stop_requested for task in record.tasks.values()] == [True, False, True, False]
    attempt = attempt_of(changes)
    assert (attempt.sub_state, attempt.exit_type, attempt.trigger_index) == (DELETING, "Failed", 1)
    assert attempt.diagnostics == ("Task main[1] failed with exit code 255: The program raised KeyError.")
    assert json.loads(attempt.runtime_exit or "") == error.info
    assert not changes.ended_attempts
    stopped = TaskExit(-220, {})
    assert not end(record, stopped, index=0, ended_ms=70).ended_attempts
    last = end(record, stopped, index=2, ended_ms=60)
    assert last.ended_attempts == [(1, 0)]
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, 255, 70)


def test_tasks_of_a_decided_attempt_are_not_retried() -> None:
    record = array(tasks=3, task_retries=1)
    add_task(record, 0, sub_state=ATTEMPT_COMPLETED, exit_code=255, completed_ms=5)
    add_task(record, 1, retries_total=1, retries_accountable=1)
    changes = end(record, FAILED, index=1)
    assert record.tasks["main-0"].sub_state == COMPLETED
    assert changes.task_columns["main-0"]["sub_state"] == COMPLETED
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, 255)


def test_undecided_job_goes_on() -> None:
    record = gang(tasks=2)
    changes = end(record, SUCCEEDED)
    assert record.row.sub_state == RUNNING
    assert not changes.attempts and not changes.stop


# -- stops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [PENDING, ATTEMPT_COMPLETED])
def test_stopped_job_that_does_not_run_ends_at_once(state: str) -> None:
    record = gang(sub_state=state, execution_type="STOP", retry_at_ms=5000)
    record.launch_error = "Not now."
    changes = advanced(record)
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, -210, 1000)
    assert record.row.retry_at_ms is None
    assert attempt_of(changes).diagnostics == "User has requested to stop the Framework\nNot now."
    assert not changes.events


def test_stopped_job_that_runs_stops_its_tasks() -> None:
    record = gang(execution_type="STOP")
    changes = advanced(record)
    assert (record.row.sub_state, record.row.exit_code, changes.stop) == (DELETING, -210, ["main-0"])
    assert attempt_of(changes).diagnostics == "User has requested to stop the Framework"
    end(record, TaskExit(-210, {}))
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, -210)


def test_job_that_succeeded_before_its_stop_has_succeeded() -> None:
    record = gang(execution_type="STOP", retries=3)
    end(record, SUCCEEDED)
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, 0)
    failed = gang(execution_type="STOP", retries=3)
    end(failed, FAILED)
    assert (failed.row.sub_state, failed.row.exit_code) == (COMPLETED, 255), "it is not retried"


@pytest.mark.parametrize("code", [-101, -120, -1001, -1003])
@pytest.mark.parametrize("retries", [0, 3])
def test_job_that_was_lost_just_before_its_stop_is_stopped(code: int, retries: int) -> None:
    """One moment later it would wait for its next attempt, and the stop would end it as stopped."""
    record = gang(execution_type="STOP", retries=retries)
    attempt = attempt_of(end(record, TaskExit(code, {}), lost=True))
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, -210, 50)
    assert (attempt.sub_state, attempt.exit_code, attempt.completed_ms) == (COMPLETED, -210, 50)
    assert attempt.diagnostics == "User has requested to stop the Framework"
    assert record.tasks["main-0"].exit_code == code


def test_gang_that_is_stopped_while_a_lost_task_ends_it_is_stopped() -> None:
    record = gang(tasks=2)
    end(record, TaskExit(-1001, {}), lost=True)
    assert (record.row.sub_state, record.row.exit_code) == (DELETING, -1001)
    record.row = replace(record.row, execution_type="STOP")
    end(record, TaskExit(-220, {}), index=1)
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, -210)


def test_job_that_is_not_retried_any_more_has_failed_before_its_stop() -> None:
    record = gang(execution_type="STOP", platform_streak=20)
    end(record, TaskExit(-1001, {}), lost=True)
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, -1001)


def test_job_whose_task_was_stopped_by_its_user_is_stopped() -> None:
    record = gang(tasks=2, execution_type="STOP")
    add_task(record, 1, sub_state=COMPLETED, exit_code=0, completed_ms=1)
    attempt = attempt_of(end(record, TaskExit(-210, {})))
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, -210)
    assert attempt.diagnostics == "User has requested to stop the Framework"


@pytest.mark.parametrize("state", [PENDING, PREPARING, RUNNING, ATTEMPT_COMPLETED])
def test_condemned_job_is_not_tried_again(state: str) -> None:
    record = gang(sub_state=state, retries=5)
    record.condemned = "Three servers died over it."
    changes = advanced(record)
    for task in record.live:
        transitions.task_ended(record, task.uid, TaskExit(-220, {}), 10, 50, changes, lost=False)
    reported = list(changes.events)
    transitions.advance(record, changes, 1000)
    assert (record.row.sub_state, record.row.exit_code) == (COMPLETED, -1100)
    why = (
        "Three servers died over it. The job is not tried again, to keep the cluster running. "
        "Make it smaller, or submit it again if the server was killed for another reason."
    )
    assert reported == changes.events == [Event(1, "Warning", "ServerDied", why)]
    assert attempt_of(changes).diagnostics == why


def test_condemned_job_that_its_user_stopped_is_stopped() -> None:
    record = gang(execution_type="STOP")
    record.condemned = "Three servers died over it."
    advanced(record)
    assert record.row.exit_code == -210


# -- launches that failed, queues -----------------------------------------------------------------


def unlaunched() -> JobRecord:
    """A gang of which one task could not be launched, for now."""
    record = gang(tasks=2, sub_state=PREPARING, launched_ms=None)
    record.launch_error = "Not now."
    add_task(record, 0, sub_state=COMPLETED, exit_code=-120)
    return record


def test_attempt_that_could_not_be_launched_is_pending_again() -> None:
    record = unlaunched()
    assert not advanced(record), "no verdict"
    assert next_queue(record, 0) is NextQueue.ACTIVE, "one task is not known to have ended"
    add_task(record, 1, sub_state=COMPLETED, exit_code=-120)
    assert next_queue(record, 0) is NextQueue.REQUEUE
    changes = Changes(task_columns={"main-0": {"uid": "main-0"}, "other": {"uid": "other"}})
    record.launched.add("main-0")
    transitions.requeue(record, changes)
    assert (record.row.sub_state, record.row.attempt, record.launch_failures) == (PENDING, 0, 1)
    assert changes.forgotten == {1: 0}
    assert list(changes.task_columns) == ["other"]
    assert attempt_of(changes).sub_state == PENDING
    assert record.deferred and not record.tasks and not record.launched
    assert next_queue(record, 0) is NextQueue.LAUNCH_BACKOFF


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (COMPLETED, NextQueue.FINISHED),
        (PENDING, NextQueue.PENDING),
        (PREPARING, NextQueue.ACTIVE),
        (RUNNING, NextQueue.ACTIVE),
        (DELETING, NextQueue.ACTIVE),
    ],
)
def test_queue_of_a_gang(state: str, expected: NextQueue) -> None:
    assert next_queue(gang(sub_state=state), 0) is expected
    # Its tasks are to be started all together.
    partly = gang(tasks=1, sub_state=state)
    partly.forget_tasks()
    assert next_queue(partly, 0) is expected


@pytest.mark.parametrize("state", [PREPARING, RUNNING])
def test_array_with_tasks_to_start_is_pending(state: str) -> None:
    record = array(tasks=2, sub_state=state)
    add_task(record, 0)
    assert next_queue(record, 0) is NextQueue.PENDING
    add_task(record, 1)
    assert next_queue(record, 0) is NextQueue.ACTIVE
    text = job_of("work", "true", extras={"gangAllocation": False})
    text["taskRoles"]["worker"] = role("true")
    one_role_started = job_record(text, sub_state=state)
    add_task(one_role_started, 0)
    assert next_queue(one_role_started, 0) is NextQueue.PENDING
    stopping = array(tasks=2, sub_state=DELETING)
    assert next_queue(stopping, 0) is NextQueue.ACTIVE


@pytest.mark.parametrize(
    ("now_ms", "wait_ms"),
    [(4000, 1000), (4999, 1), (5000, 0), (6000, -1000), (0, 3000)],
    ids=["before", "just before", "at", "after", "clock set back"],
)
def test_wait_for_the_next_attempt(now_ms: int, wait_ms: int) -> None:
    record = gang(sub_state=ATTEMPT_COMPLETED, retry_at_ms=5000, retry_delay_s=3.0)
    assert transitions.retry_wait_ms(record, now_ms) == wait_ms
    queue = NextQueue.RETRY_DELAY if wait_ms > 0 else NextQueue.NEXT_ATTEMPT
    assert next_queue(record, now_ms) is queue


def test_attempt_without_a_delay_begins_at_once() -> None:
    record = gang(sub_state=ATTEMPT_COMPLETED, retry_at_ms=None, retry_delay_s=None)
    assert transitions.retry_wait_ms(record, 5) == -5
    assert next_queue(record, 0) is NextQueue.NEXT_ATTEMPT


def test_diagnostics_name_the_error_of_the_task_that_decided() -> None:
    failed = Verdict(255, "", "main", 0, True, "Task main[0] failed")
    for info, expected in (
        (None, "Task main[0] failed"),
        ({"caughtException": "No."}, "Task main[0] failed: No."),
        ({"exitCode": 255}, "Task main[0] failed"),
    ):
        trigger = add_task(gang(), exit_info=None if info is None else json.dumps(info))
        assert transitions._with_trigger(failed, trigger) == expected
    succeeded = replace(failed, exit_code=0, diagnostics="Pod succeeded")
    warned = add_task(gang(), exit_info=json.dumps({"caughtException": "No."}))
    assert transitions._with_trigger(succeeded, warned) == "Pod succeeded"
