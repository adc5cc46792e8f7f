"""The error of a call whose task ended without a result, by what ended the task."""

import linecache

import pytest

from openpaisdk.client.models import JobStatus
from openpaisdk.functions import task_errors


def status_with(exit_code: int, state: str = "FAILED") -> JobStatus:
    task = {"taskIndex": 0, "taskState": state, "containerExitCode": exit_code}
    return JobStatus(
        {
            "name": "train",
            "jobStatus": {"username": "ann", "state": state, "appExitCode": exit_code},
            "taskRoles": {"main": {"taskRoleStatus": {"name": "main"}, "taskStatuses": [task]}},
        }
    )


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        (-1200, task_errors.TaskOutOfMemory),
        (-1004, task_errors.TaskTimeout),
        (-1100, task_errors.DependencyFailed),
        (-1001, task_errors.TaskLost),
        (-101, task_errors.TaskLost),
        (137, task_errors.TaskKilled),
        (3, task_errors.TaskError),
    ],
)
def test_kind_by_the_exit_code_of_the_task(exit_code: int, kind: type) -> None:
    job = status_with(exit_code)
    error = task_errors.task_error(job, job.tasks[0], "the last line\n")
    assert type(error) is kind and isinstance(error, task_errors.TaskError)
    assert (error.job, error.exit_code, error.log_end) == ("train", exit_code, "the last line\n")
    assert "The function did not return (train)" in str(error)
    assert error.__notes__ == ["The end of its log:\nthe last line"]


def test_exit_code_is_the_programs_own() -> None:
    """Clusters of OpenPAI give every failed program the code 255."""
    job = status_with(255)
    job.tasks[0].origin_exit_code = 7
    error = task_errors.task_error(job, job.tasks[0], "")
    assert type(error) is task_errors.TaskError and error.exit_code == 7


def test_code_of_the_cluster_says_what_ended_the_task() -> None:
    job = status_with(-1200)
    job.tasks[0].origin_exit_code = 137
    error = task_errors.task_error(job, job.tasks[0], "")
    assert type(error) is task_errors.TaskOutOfMemory and error.exit_code == -1200


def test_lines_of_a_notebook_are_added_to_a_remote_traceback() -> None:
    linecache.cache["<cell 3>"] = (None, None, ["def bad(x):\n", "    return 1 / x\n"], "<cell 3>")  # type: ignore[assignment]
    remote = (
        "Traceback (most recent call last):\n"
        '  File "<cell 3>", line 2, in bad\n'
        '  File "/nowhere/module.py", line 7, in divide\n'
        "    raise there\n"
        '  File "<unknown>", line 1, in other\n'
        "ZeroDivisionError: division by zero\n"
    )
    try:
        shown = task_errors.with_source_lines(remote)
    finally:
        del linecache.cache["<cell 3>"]
    assert shown == remote.replace("in bad\n", "in bad\n    return 1 / x\n")


def test_stopped_job() -> None:
    job = status_with(-210, "STOPPED")
    assert type(task_errors.task_error(job, job.tasks[0], "")) is task_errors.JobStopped


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"timed_out": True, "exit_code": 143}, task_errors.TaskTimeout),
        ({"out_of_memory": True, "exit_code": 137}, task_errors.TaskOutOfMemory),
        ({"exit_code": 139}, task_errors.TaskKilled),
        ({"exit_code": 7}, task_errors.TaskError),
    ],
)
def test_kind_of_a_call_that_shares_its_task(fields: dict[str, object], kind: type) -> None:
    described = {"message": "it ended", **fields}
    error = task_errors.ended_error(described, job="sweep", call="sweep_3", log_end="")
    assert type(error) is kind and str(error) == "The function did not return (sweep_3): it ended."
