"""Exit classification: exit codes, and messages beyond them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paicluster.controller.exit_classification import (
    TaskExit,
    loss_reason,
    needs_log,
    origin_code,
    out_of_time,
    task_exit,
)
from paicluster.engines.interface import Loss, Observation, Phase
from paiprotocol.jobs.failure_causes import FEWER_PROCESSES, TOO_MANY_PROCESSES

FAILED = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=1)
STOP_MESSAGES = {
    -210: "User has requested to stop the Framework",
    -220: "Stop to complete current FrameworkAttempt",
    -1003: "The task was preempted by a job whose quota includes the resources it used.",
    None: "The task could not be launched.",
}
TIME_LIMIT = "The task was ended because it ran longer than its time limit."


def failed(**fields: Any) -> Observation:
    return replace(FAILED, **fields)


def exit_of(observation: Observation, stop_code: int | None = None) -> tuple[int, str, object]:
    """Exit code, message and the program's own exit code."""
    outcome = task_exit(observation, stop_code=stop_code)
    assert outcome.info["exitCode"] == outcome.code
    message = str(outcome.info.get("caughtException", ""))
    return outcome.code, message, outcome.info.get("originUserExitCode")


def test_origin_code_is_that_of_a_shell() -> None:
    assert origin_code(failed(signal=9, exit_code=None)) == 137
    assert origin_code(failed(exit_code=3)) == 3
    assert origin_code(failed(exit_code=None)) == 0


def test_exit_information_is_readable_json() -> None:
    assert TaskExit(0, {"caughtException": "größer"}).info_json() == '{"caughtException": "größer"}'


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"phase": Phase.LOST}, False),
        ({"start_error": "no"}, False),
        ({"stopped": True}, True),
        ({"timed_out": True}, False),
        ({"out_of_memory": True}, False),
        ({"rejection": "no"}, False),
        ({"platform_code": -1}, False),
        ({"loss": Loss.NODE}, False),
        ({"exit_code": 0}, False),
    ],
)
def test_log_is_read_where_nothing_else_explains_the_failure(fields: dict[str, Any], expected: bool) -> None:
    assert needs_log(failed(**fields), stop_code=None) is expected
    assert needs_log(failed(**fields), stop_code=-210) is (expected and "stopped" not in fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rejection": "Too large."}, (-200, "Too large.", None)),
        ({"rejection": "Too large.", "platform_code": -1100}, (-1100, "Too large.", None)),
        ({"start_error": "No such image."}, (-1204, "No such image.", None)),
        ({"start_error": "No such image.", "platform_code": -300}, (-300, "No such image.", None)),
        ({"platform_code": -300}, (-300, "The platform ended the task.", None)),
        ({"started_ms": None}, (-120, "The task could not be launched.", None)),
        ({"exit_code": 247}, (247, "", 247)),
        ({"exit_code": 0}, (0, "", 0)),
        ({"timed_out": True}, (-1004, TIME_LIMIT, 1)),
        ({"timed_out": True, "exit_code": 0}, (0, "", 0)),
        ({"timed_out": True, "exit_code": 0, "killed_by_us": True}, (-1004, TIME_LIMIT, 0)),
        ({"loss": Loss.NODE}, (-1001, "The machine that ran the task failed.", 1)),
        ({"exit_code": 0, "loss": Loss.NODE, "out_of_memory": True}, (0, "", 0)),
        ({}, (255, "", 1)),
        ({"stopped": True}, (255, "", 1)),
        # Its program was never run.
        ({"stopped": True, "exit_code": None}, (-120, "The task could not be launched.", None)),
    ],
)
def test_exit_of_a_task_that_was_not_asked_to_stop(
    fields: dict[str, Any], expected: tuple[int, str, object]
) -> None:
    assert exit_of(failed(**fields)) == expected


@pytest.mark.parametrize("stop_code", [-210, -220, -1003])
def test_exit_of_a_stopped_task(stop_code: int) -> None:
    message = STOP_MESSAGES[stop_code]
    assert exit_of(failed(started_ms=None), stop_code) == (stop_code, message, None)
    assert exit_of(failed(stopped=True, exit_code=None), stop_code) == (stop_code, message, None)
    assert exit_of(failed(stopped=True), stop_code) == (stop_code, message, 1)
    assert exit_of(failed(stopped=True, exit_code=247), stop_code) == (stop_code, message, 247)
    killed = failed(stopped=True, exit_code=0, killed_by_us=True)
    assert exit_of(killed, stop_code) == (stop_code, message, 0)
    # It ended before the request reached it.
    assert exit_of(failed(), stop_code) == (255, "", 1)
    assert exit_of(failed(stopped=True, exit_code=0), stop_code) == (0, "", 0)
    # It may have saved its state, to continue later.
    signaled = failed(stopped=True, exit_code=0, signaled=True)
    assert exit_of(signaled, stop_code)[0] == (-1003 if stop_code == -1003 else 0)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"loss": Loss.UNKNOWN}, -101, "The task's supervisor died."),
        ({"loss": None}, -101, "The task's supervisor died."),
        ({"loss": Loss.NODE}, -1001, "The machine that ran the task failed."),
        ({"loss": Loss.PREEMPTED}, -1003, STOP_MESSAGES[-1003]),
        ({"loss": Loss.CANCELLED}, -101, "The task was cancelled from outside this cluster."),
        ({"loss": Loss.WITHDRAWN}, -210, "The task was cancelled in its queue, from outside this cluster."),
        ({"loss": Loss.NOT_STARTED}, -120, "The task never started on its node."),
        ({"loss": Loss.DAEMON}, -101, "The docker daemon exited, and the task with it."),
        ({"loss": Loss.NODE, "timed_out": True, "out_of_memory": True}, -1004, TIME_LIMIT),
        (
            {"loss": Loss.NODE, "out_of_memory": True},
            -1200,
            "The task used more memory than it requested; the kernel killed it or one of its processes.",
        ),
    ],
)
def test_exit_of_a_lost_task(fields: dict[str, Any], code: int, message: str) -> None:
    lost = failed(phase=Phase.LOST, **fields)
    assert exit_of(lost) == exit_of(lost, -210) == (code, message, None)
    assert loss_reason(lost) == message


def test_limit_of_an_external_scheduler_is_not_known() -> None:
    assert out_of_time(None) == out_of_time(0) == TIME_LIMIT


def test_end_of_the_log_is_part_of_the_exit_information() -> None:
    log = b"".join(b"line %d\n" % number for number in range(40))
    outcome = task_exit(FAILED, stop_code=None, log_tail=log)
    lines = [f"line {number}" for number in range(25, 40)]
    assert outcome.info["errorLogs"] == {"user": "\n".join(lines), "platform": ""}
    assert "matchedUserLogString" not in outcome.info and "solution" not in outcome.info
    assert task_exit(FAILED, stop_code=None).info["errorLogs"] == {"user": "", "platform": ""}
    long = task_exit(FAILED, stop_code=None, log_tail=b"\xff" + b"x" * 4095 + b"y")
    assert long.info["errorLogs"] == {"user": "x" * 4095 + "y", "platform": ""}
    broken = task_exit(FAILED, stop_code=None, log_tail=b"\xff")
    assert broken.info["errorLogs"] == {"user": "\N{REPLACEMENT CHARACTER}", "platform": ""}


def test_task_with_too_many_processes_says_what_to_do() -> None:
    outcome = task_exit(failed(forks_refused=True), stop_code=None)
    assert outcome.info["caughtException"] == f"{TOO_MANY_PROCESSES}."
    assert outcome.info["solution"] == f"{FEWER_PROCESSES}."


def test_files_that_are_not_in_the_storages_are_reported() -> None:
    lost = b"trained\nNot all files of the task are in its storages: no room\n"
    assert task_exit(failed(exit_code=74), stop_code=None, log_tail=lost).info["caughtException"] == (
        "The task succeeded, but not all of its files are in its storages: the end of its log says why."
    )
    for log in (lost, b"The outputs could not be uploaded to /Output/x\n"):
        outcome = task_exit(FAILED, stop_code=None, log_tail=log)
        assert "The task succeeded" not in str(outcome.info.get("caughtException"))
    inside = b"note: The outputs could not be uploaded. Not all files of the task are in its storages\n"
    outcome = task_exit(failed(exit_code=74), stop_code=None, log_tail=inside)
    assert "The task succeeded" not in str(outcome.info.get("caughtException"))


def test_failed_output_upload_differs_from_a_program_with_that_status() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=74)
    log = b"trained\nThe outputs could not be uploaded to /Output/x: no room\n"
    assert task_exit(ended, stop_code=None, log_tail=log).info["caughtException"] == (
        "The task succeeded, but its outputs could not be uploaded: the end of its log says why."
    )
    assert "could not be uploaded" not in str(task_exit(ended, stop_code=None, log_tail=b"trained\n").info)


def test_message_names_the_time_limit() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, signal=15, timed_out=True)
    outcome = task_exit(ended, stop_code=None, time_limit_s=90)
    assert (outcome.code, outcome.info["originUserExitCode"]) == (-1004, 143)
    assert outcome.info["caughtException"] == (
        "The task was ended because it ran longer than its time limit of 90 s."
    )


def test_task_that_the_kernel_killed_says_what_to_do() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, signal=9, out_of_memory=True)
    outcome = task_exit(ended, stop_code=None)
    assert (outcome.code, outcome.info["originUserExitCode"]) == (-1200, 137)
    assert outcome.info["caughtException"] == (
        "The task used more memory than it requested; the kernel killed it or one of its processes."
    )
    assert outcome.info["solution"] == "Request more with --mem (`memoryMB` in a job file)."


def test_known_cause_is_part_of_the_exit_information() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=127)
    outcome = task_exit(ended, stop_code=None, log_tail=b"bash: line 1: trian: command not found\n")
    assert outcome.code == 220
    assert outcome.info["caughtException"] == "The command trian does not exist where the task runs."
    assert outcome.info["solution"] == (
        "Check its spelling; if it is right, install it or choose an image that contains it (-i)."
    )
    assert outcome.info["matchedUserLogString"] == "bash: line 1: trian: command not found"
