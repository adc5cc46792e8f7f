"""From how a program ended to the exit code a task is reported with."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from openpaisdk.protocol.completion import (
    COMPLETE_DIAGNOSTICS,
    STOP_DIAGNOSTICS,
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
)
from openpaisdk.protocol.exit_codes import match_exit
from paicluster.engines.interface import Loss, Observation, Phase

LOST = -101
NOT_STARTABLE = -1204
OVER_MEMORY = -1200
NOT_LAUNCHED = -120
REFUSED = -200
NODE_LOST = -1001
PREEMPTED = -1003
OUT_OF_TIME = -1004
NEVER_STARTED = -1100

# How the supervisor ends a task that did its work and whose results stayed behind, and what it then says.
_LEFT_BEHIND = 74
_NOT_KEPT_WORDS = re.compile(rb"^The results could not be brought to .*", re.M)
_NOT_KEPT = "The task did its work, and its results could not be kept: the end of its log says why."

# By what took it away: the code, and what people are told.
_LOSSES = {
    Loss.UNKNOWN: (LOST, "The task's supervisor died."),
    Loss.NODE: (NODE_LOST, "The machine that ran the task failed."),
    Loss.PREEMPTED: (PREEMPTED, "The task had to give way to a job with a right to what it used."),
    Loss.CANCELLED: (LOST, "Somebody ended the task, past this cluster."),
    Loss.WITHDRAWN: (STOPPED_BY_USER, "Somebody cancelled the task where it was to run, past this cluster."),
    Loss.NOT_STARTED: (NOT_LAUNCHED, "It never began where it was to run."),
    Loss.DAEMON: (LOST, "The docker daemon ended, and the task with it."),
}


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
        and not seen.out_of_memory
        and not seen.rejection
        and seen.platform_code is None
        and seen.loss is None
        and origin_code(seen) != 0
    )


def task_exit(
    seen: Observation, *, stop_code: int | None, log_tail: bytes = b"", time_limit_s: int | None = None
) -> TaskExit:
    """``stop_code`` is why we asked the task to stop, if we did."""
    if seen.rejection:
        code = seen.platform_code if seen.platform_code is not None else REFUSED
        return TaskExit(code, {"exitCode": code, "caughtException": seen.rejection})
    if seen.phase is Phase.LOST:
        return _lost(seen)
    if seen.started_ms is None:
        # It never started: stopped before that, or the machine could not start it.
        code = stop_code if stop_code is not None else NOT_LAUNCHED
        return TaskExit(code, {"exitCode": code, "caughtException": _why_stopped(stop_code)})
    if seen.platform_code is not None:
        why = seen.start_error or "The platform ended the task."
        return TaskExit(seen.platform_code, {"exitCode": seen.platform_code, "caughtException": why})
    if seen.start_error:
        code = seen.platform_code if seen.platform_code is not None else NOT_STARTABLE
        return TaskExit(code, {"exitCode": code, "caughtException": seen.start_error})
    origin = origin_code(seen)
    if seen.timed_out and (origin != 0 or seen.killed_by_us):
        return _with_reason(OUT_OF_TIME, origin, out_of_time(time_limit_s))
    # One that gives way has not done its work, however well it ended: it saved what it had, to go on later.
    unfinished = origin != 0 or seen.killed_by_us or (stop_code == PREEMPTED and seen.signaled)
    if seen.stopped and stop_code is not None and unfinished:
        return TaskExit(
            stop_code,
            {"exitCode": stop_code, "originUserExitCode": origin, "caughtException": _why_stopped(stop_code)},
        )
    if origin == 0:
        return TaskExit(0, {"exitCode": 0, "originUserExitCode": 0})
    if seen.out_of_memory:
        return _with_reason(OVER_MEMORY, origin, _OVER_MEMORY)
    if seen.loss is not None:
        return _with_reason(_LOSSES[seen.loss][0], origin, _LOSSES[seen.loss][1])
    match = match_exit(origin, log_tail)
    info: dict[str, object] = {"exitCode": match.code, "originUserExitCode": origin}
    if match.matched is not None:
        info["matchedUserLogString"] = match.matched
    if origin == _LEFT_BEHIND and _NOT_KEPT_WORDS.search(log_tail):
        info["caughtException"] = _NOT_KEPT
    last_lines = log_tail[-4096:].decode("utf-8", "replace").splitlines()[-15:]
    info["errorLogs"] = {"user": "\n".join(last_lines), "platform": ""}
    return TaskExit(match.code, info)


_OVER_MEMORY = "The task used more memory than it asked for, and the machine killed it or a part of it."


def out_of_time(time_limit_s: int | None) -> str:
    """Of tasks that another cluster ran only that one knows the limit."""
    limit = f" of {time_limit_s} s" if time_limit_s else ""
    return f"The task was ended because it ran longer than its time limit{limit}."


def _with_reason(code: int, origin: int, why: str) -> TaskExit:
    return TaskExit(code, {"exitCode": code, "originUserExitCode": origin, "caughtException": why})


def _lost(seen: Observation) -> TaskExit:
    """It is gone without a word of its own; somebody else may know why."""
    code, why = _LOSSES[seen.loss or Loss.UNKNOWN]
    if seen.timed_out:
        code, why = OUT_OF_TIME, out_of_time(None)
    elif seen.out_of_memory:
        code, why = OVER_MEMORY, _OVER_MEMORY
    return TaskExit(code, {"exitCode": code, "caughtException": why})


def loss_reason(seen: Observation) -> str:
    """The sentence for people."""
    return str(_lost(seen).info["caughtException"])


def _why_stopped(stop_code: int | None) -> str:
    if stop_code == STOPPED_BY_USER:
        return STOP_DIAGNOSTICS
    if stop_code == STOPPED_TO_COMPLETE:
        return COMPLETE_DIAGNOSTICS
    if stop_code == PREEMPTED:
        return "The task gave way to a job with a right to what it used."
    return "The task could not be launched."
