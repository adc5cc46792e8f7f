"""Retries of a job: when the next attempt starts, and which failures count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paicluster.controller import transitions
from paicluster.controller.exit_classification import TaskExit
from paicluster.controller.job_record import JobRecord
from paicluster.controller.reconcile_changes import Changes, Event
from paicluster.scheduler.placement import TaskPlacement
from paicluster.store.rows import AttemptRow
from support.job_records import add_task, gang, job_record
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
    place,
)
from support.server_fixture import job as job_of

LONG_MS = 600_000


def test_failed_job_is_retried_after_a_delay() -> None:
    record = gang(retries=3, attempt=1, retries_user=1, platform_streak=2)
    record.row = replace(record.row, retries=1)
    changes = end(record, FAILED)
    row = record.row
    assert (row.sub_state, row.attempt, row.completed_ms) == (ATTEMPT_COMPLETED, 1, None)
    assert (row.retries, row.retries_user, row.retries_platform, row.platform_streak) == (2, 2, 0, 0)
    assert (row.retry_delay_s, row.retry_at_ms) == (1.0, 2000)
    assert attempt_of(changes, 1).sub_state == COMPLETED
    message = "Attempt 2 ended with exit code 7: retry 2 of 3; it starts in 1 s."
    assert changes.events == [Event(1, "Warning", "Retrying", message, pending=True)]
    assert changes.ended_attempts == [(1, 1)]


def test_first_retry_starts_at_once() -> None:
    record = gang(retries=3)
    changes = end(record, TaskExit(255, {}))
    assert changes.events[0].message == "Attempt 1 ended with exit code 255: retry 1 of 3."
    assert record.row.retry_at_ms == 1000


def test_attempt_that_made_progress_is_retried_at_once() -> None:
    record = gang(retries=9, launched_ms=0)
    record.row = replace(record.row, retries=4, retries_user=4)
    end(record, FAILED, ended_ms=LONG_MS)
    assert record.row.retry_delay_s == 0.0


@pytest.mark.parametrize(("ended_ms", "streak"), [(LONG_MS - 1, 4), (LONG_MS, 1)])
def test_progress_resets_the_streak_of_platform_failures(ended_ms: int, streak: int) -> None:
    record = gang(launched_ms=0)
    record.row = replace(record.row, retries=3, platform_streak=3)
    end(record, TaskExit(-1001, {"originUserExitCode": 9}), ended_ms=ended_ms, lost=True)
    assert (record.row.retries, record.row.retries_platform, record.row.retries_user) == (4, 4, 0)
    assert record.row.platform_streak == streak


def test_exit_code_of_the_platform_is_reported_as_it_is() -> None:
    record = gang()
    changes = end(record, TaskExit(-1001, {"originUserExitCode": 9}))
    assert changes.events[0].message.startswith("Attempt 1 ended with exit code -1001: ")


@pytest.mark.parametrize(
    ("retries", "used", "message"),
    [(2, 2, "All 2 retries are used."), (3, 3, "All 3 retries are used."), (0, 0, "")],
)
def test_job_without_retries_left_says_so(retries: int, used: int, message: str) -> None:
    record = gang(retries=retries)
    record.row = replace(record.row, retries=used, retries_user=used)
    changes = end(record, FAILED)
    assert (record.row.sub_state, record.row.exit_code, record.row.completed_ms) == (COMPLETED, 255, 50)
    assert changes.events == ([Event(1, "Normal", "NotRetried", message)] if message else [])


def test_job_that_succeeded_in_a_retry_says_so() -> None:
    record = gang()
    record.row = replace(record.row, retries=1)
    assert end(record, SUCCEEDED).events == [Event(1, "Normal", "NotRetried", "It succeeded.")]


@pytest.mark.parametrize("platform_streak", [0, 20])
def test_preempted_gang_is_retried_however_often(platform_streak: int) -> None:
    record = gang(tasks=2, priority="oppo")
    record.row = replace(record.row, platform_streak=platform_streak)
    add_task(record, 0, stop_requested=True)
    changes = end(record, TaskExit(-1003, {}))
    assert changes.stop == ["main-1"]
    assert (record.row.sub_state, record.row.exit_code) == (DELETING, -1003)
    attempt = attempt_of(changes)
    assert attempt.diagnostics == "Task main[0] failed with exit code -1003"
    assert (attempt.trigger_role, attempt.trigger_index) == ("main", 0)
    end(record, TaskExit(-220, {}), index=1)
    assert (record.row.sub_state, record.row.platform_streak) == (ATTEMPT_COMPLETED, 1)


def tolerant(priority: str | None) -> JobRecord:
    policy = {"minFailedInstances": 2}
    record = job_record(job_of("work", "true", instances=2, completion=policy), priority=priority)
    add_task(record, 1)
    return record


def test_preemption_ends_a_gang_that_tolerates_failures() -> None:
    record = tolerant("oppo")
    add_task(record, 0, stop_requested=True)
    attempt = attempt_of(end(record, TaskExit(-1003, {})))
    assert (record.row.sub_state, record.row.exit_code) == (DELETING, -1003)
    assert (attempt.trigger_role, attempt.trigger_index, attempt.trigger_message) == ("main", 0, "")
    assert attempt.diagnostics == "Task main[0] failed with exit code -1003"


@pytest.mark.parametrize(
    ("priority", "stop_requested", "code"), [(None, True, -1003), ("oppo", False, -1003), ("oppo", True, 1)]
)
def test_other_failures_do_not_count_as_preemption(
    priority: str | None, stop_requested: bool, code: int
) -> None:
    record = tolerant(priority)
    add_task(record, 0, stop_requested=stop_requested)
    end(record, TaskExit(code, {}))
    assert record.row.sub_state == RUNNING


def test_verdict_of_a_task_takes_precedence_over_preemption() -> None:
    record = gang(tasks=2, priority="oppo")
    add_task(record, 0, stop_requested=True, sub_state=COMPLETED, exit_code=-1003, completed_ms=60)
    end(record, FAILED, index=1)
    assert record.row.exit_code == 255


def test_completed_attempts_wait_for_nothing() -> None:
    record = gang(sub_state=COMPLETED)
    assert not advanced(record)
    waiting = gang(sub_state=ATTEMPT_COMPLETED)
    assert not advanced(waiting)


def test_attempt_ends_with_its_last_task() -> None:
    record = gang(sub_state=DELETING, exit_code=255)
    add_task(record, 0, sub_state=COMPLETED, exit_code=255, completed_ms=None)
    changes = advanced(record)
    assert attempt_of(changes).completed_ms == record.row.completed_ms == 1000


def test_next_attempt_has_a_row_of_its_own() -> None:
    record = gang(sub_state=ATTEMPT_COMPLETED, attempt=0, exit_code=255, retry_delay_s=1.0, completed_ms=9)
    record.row = replace(record.row, retries=1, retry_at_ms=2000)
    record.launched.add("main-0")
    changes = Changes()
    transitions.begin_next_attempt(record, changes)
    row = record.row
    assert (row.sub_state, row.attempt, row.exit_code) == (PENDING, 1, None)
    assert (row.launched_ms, row.completed_ms, row.retry_at_ms, row.retry_delay_s) == (None,) * 4
    assert not record.launched
    assert changes.job_columns[1].keys() >= {"launched_ms", "completed_ms", "retry_at_ms", "retry_delay_s"}
    placed, changes = place(record, TaskPlacement("main", 0, "here", ()))
    assert attempt_of(changes, 1) == AttemptRow(1, 1, PREPARING, created_ms=77)
    assert placed[0].task_attempt == 0
