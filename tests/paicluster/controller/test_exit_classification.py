"""What people are told of a task's end beyond its exit code."""

from __future__ import annotations

from paicluster.controller.exit_classification import task_exit
from paicluster.engines.interface import Observation, Phase


def test_results_that_could_not_be_kept_are_told_apart_from_a_program_that_ends_so() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, exit_code=74)
    log = b"trained\nThe results could not be brought to /Output/x on the storage: no room\n"
    assert "results could not be kept" in str(task_exit(ended, stop_code=None, log_tail=log).info)
    assert "could not be kept" not in str(task_exit(ended, stop_code=None, log_tail=b"trained\n").info)


def test_a_time_limit_is_named() -> None:
    ended = Observation(Phase.ENDED, started_ms=1, ended_ms=2, signal=15, timed_out=True)
    told = task_exit(ended, stop_code=None, time_limit_s=90)
    assert (told.code, told.info["originUserExitCode"]) == (-1004, 143)
    assert told.info["caughtException"] == (
        "The task was ended because it ran longer than its time limit of 90 s."
    )
