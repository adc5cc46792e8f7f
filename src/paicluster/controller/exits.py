"""From how a program ended to the exit code a task is reported with."""

from __future__ import annotations

import json
from dataclasses import dataclass

from openpaisdk.protocol.completion import (
    COMPLETE_DIAGNOSTICS,
    STOP_DIAGNOSTICS,
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
)
from openpaisdk.protocol.exitcodes import match_exit
from paicluster.engines.interface import Observation, Phase

LOST = -101
NOT_STARTABLE = -1204
OVER_MEMORY = -1200
NOT_LAUNCHED = -120
PREEMPTED = -1003
OUT_OF_TIME = -1004
NEVER_STARTED = -1100


@dataclass(frozen=True, slots=True)
class TaskExit:
    code: int
    # What OpenPAI calls the runtime's exit information: the program's own code, what its log gave away.
    info: dict[str, object]

    def info_json(self) -> str:
        return json.dumps(self.info, ensure_ascii=False)


def origin_code(seen: Observation) -> int:
    """The program's own exit status, as a shell would show it."""
    if seen.signal is not None:
        return 128 + seen.signal
    return seen.exit_code or 0


def needs_log(seen: Observation, *, stop_code: int | None) -> bool:
    """Whether the log must be looked at to say why it ended."""
    return (
        seen.phase is Phase.ENDED
        and not seen.start_error
        and not (stop_code is not None and seen.stopped)
        and not seen.timed_out
        and not seen.over_memory
        and origin_code(seen) != 0
    )


def task_exit(seen: Observation, *, stop_code: int | None, log_tail: bytes = b"") -> TaskExit:
    """``stop_code`` is why we asked the task to stop, if we did."""
    if seen.phase is Phase.LOST:
        return TaskExit(LOST, {"exitCode": LOST, "caughtException": "The task's supervisor died."})
    if seen.started_ms is None:
        # It never started: stopped before that, or the machine could not start it.
        code = stop_code if stop_code is not None else NOT_LAUNCHED
        return TaskExit(code, {"exitCode": code, "caughtException": _why_stopped(stop_code)})
    if seen.start_error:
        return TaskExit(NOT_STARTABLE, {"exitCode": NOT_STARTABLE, "caughtException": seen.start_error})
    origin = origin_code(seen)
    if seen.timed_out and (origin != 0 or seen.killed_by_us):
        why = "The task ran longer than its time limit."
        return TaskExit(
            OUT_OF_TIME, {"exitCode": OUT_OF_TIME, "originUserExitCode": origin, "caughtException": why}
        )
    if seen.stopped and stop_code is not None and (origin != 0 or seen.killed_by_us):
        return TaskExit(
            stop_code,
            {"exitCode": stop_code, "originUserExitCode": origin, "caughtException": _why_stopped(stop_code)},
        )
    if origin == 0:
        return TaskExit(0, {"exitCode": 0, "originUserExitCode": 0})
    if seen.over_memory:
        why = "The task used more memory than it asked for, and the machine killed it or a part of it."
        return TaskExit(
            OVER_MEMORY, {"exitCode": OVER_MEMORY, "originUserExitCode": origin, "caughtException": why}
        )
    match = match_exit(origin, log_tail)
    info: dict[str, object] = {"exitCode": match.code, "originUserExitCode": origin}
    if match.matched is not None:
        info["matchedUserLogString"] = match.matched
    last_lines = log_tail[-4096:].decode("utf-8", "replace").splitlines()[-15:]
    info["errorLogs"] = {"user": "\n".join(last_lines), "platform": ""}
    return TaskExit(match.code, info)


def _why_stopped(stop_code: int | None) -> str:
    if stop_code == STOPPED_BY_USER:
        return STOP_DIAGNOSTICS
    if stop_code == STOPPED_TO_COMPLETE:
        return COMPLETE_DIAGNOSTICS
    if stop_code == PREEMPTED:
        return "The task gave way to a job with a right to what it used."
    return "The task could not be launched."
