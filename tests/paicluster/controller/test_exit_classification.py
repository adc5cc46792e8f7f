"""Exit classification: messages beyond the exit code."""

from __future__ import annotations

from paicluster.controller.exit_classification import task_exit
from paicluster.engines.interface import Observation, Phase


def test_failed_output_upload_differs_from_a_program_with_that_status() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=74)
    log = b"trained\nThe outputs could not be uploaded to /Output/x: no room\n"
    assert "outputs could not be uploaded" in str(task_exit(ended, stop_code=None, log_tail=log).info)
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
    assert "the kernel killed it" in str(outcome.info["caughtException"])
    assert outcome.info["solution"] == "Request more with --mem (`memoryMB` in a job file)."


def test_known_cause_is_part_of_the_exit_information() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=127)
    outcome = task_exit(ended, stop_code=None, log_tail=b"bash: line 1: trian: command not found\n")
    assert outcome.code == 220
    assert outcome.info["caughtException"] == "The command trian does not exist where the task runs."
    assert str(outcome.info["solution"]).startswith("Check its spelling")
