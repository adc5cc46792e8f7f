"""Exit classification: maps how a task ended to the exit code it is reported with."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from paicluster.engines.interface import Loss, Observation, Phase
from paiprotocol.jobs.completion import (
    COMPLETE_DIAGNOSTICS,
    STOP_DIAGNOSTICS,
    STOPPED_BY_USER,
    STOPPED_TO_COMPLETE,
)
from paiprotocol.jobs.exit_codes import exit_spec, match_exit
from paiprotocol.jobs.failure_causes import FEWER_PROCESSES, TOO_MANY_PROCESSES
from paiprotocol.jobs.retries import CONTINUES_IN_RETRY

LOST = -101
NOT_STARTABLE = -1204
OVER_MEMORY = -1200
NOT_LAUNCHED = -120
REFUSED = -200
NODE_LOST = -1001
PREEMPTED = -1003
OUT_OF_TIME = -1004
NEVER_STARTED = -1100

# Exit status of the supervisor when the task succeeded but not all of its files are kept, and the lines that
# it then writes to the log.
_UPLOAD_FAILED_STATUS = 74
_UPLOAD_FAILED_LINE = re.compile(rb"^The outputs could not be uploaded.*", re.M)
_FILES_LOST_LINE = re.compile(rb"^Not all files of the task are in its storages.*", re.M)
_FILES_LOST = "The task succeeded, but not all of its files are in its storages: the end of its log says why."
_UPLOAD_FAILED = "The task succeeded, but its outputs could not be uploaded: the end of its log says why."

# Exit code and message by kind of loss.
_LOSSES = {
    Loss.UNKNOWN: (LOST, "The task's supervisor died."),
    Loss.NODE: (NODE_LOST, "The machine that ran the task failed."),
    Loss.PREEMPTED: (
        PREEMPTED,
        "The task was preempted by a job whose quota includes the resources it used.",
    ),
    Loss.CANCELLED: (LOST, "The task was cancelled from outside this cluster."),
    Loss.WITHDRAWN: (STOPPED_BY_USER, "The task was cancelled in its queue, from outside this cluster."),
    Loss.NOT_STARTED: (NOT_LAUNCHED, "The task never started on its node."),
    Loss.DAEMON: (LOST, "The docker daemon exited, and the task with it."),
}


@dataclass(frozen=True, slots=True)
class TaskExit:
    code: int
    # OpenPAI's runtime exit information: the program's own code, and what was found in its log.
    info: dict[str, object]

    def info_json(self) -> str:
        return json.dumps(self.info, ensure_ascii=False)


def origin_code(observation: Observation) -> int:
    """The program's own exit status, as a shell would show it."""
    if observation.signal is not None:
        return 128 + observation.signal
    return observation.exit_code or 0


def needs_log(observation: Observation, *, stop_code: int | None) -> bool:
    """Whether the log is needed to classify the exit."""
    return (
        observation.phase is Phase.ENDED
        and not observation.start_error
        and not (stop_code is not None and observation.stopped)
        and not observation.timed_out
        and not observation.out_of_memory
        and not observation.rejection
        and observation.platform_code is None
        and observation.loss is None
        and origin_code(observation) != 0
    )


def task_exit(
    observation: Observation, *, stop_code: int | None, log_tail: bytes = b"", time_limit_s: int | None = None
) -> TaskExit:
    """The exit to report. ``stop_code``: exit code of a task that the controller stopped, else None."""
    if observation.rejection:
        code = observation.platform_code if observation.platform_code is not None else REFUSED
        return TaskExit(code, {"exitCode": code, "caughtException": observation.rejection})
    if observation.phase is Phase.LOST:
        return _lost(observation)
    if observation.started_ms is None:
        # It never started: stopped before, or the node could not start it.
        return _not_launched(stop_code)
    if observation.platform_code is not None:
        reason = observation.start_error or "The platform ended the task."
        return TaskExit(
            observation.platform_code, {"exitCode": observation.platform_code, "caughtException": reason}
        )
    if observation.start_error:
        return TaskExit(
            NOT_STARTABLE, {"exitCode": NOT_STARTABLE, "caughtException": observation.start_error}
        )
    if _was_stopped_before_the_program(observation):
        return _not_launched(stop_code)
    origin = origin_code(observation)
    if origin == CONTINUES_IN_RETRY and stop_code is None:
        return TaskExit(origin, {"exitCode": origin, "originUserExitCode": origin})
    if observation.timed_out and (origin != 0 or observation.killed_by_us):
        return _with_reason(OUT_OF_TIME, origin, out_of_time(time_limit_s))
    # A preempted task is unfinished, even with exit status 0: it may have saved its state to resume later.
    unfinished = origin != 0 or observation.killed_by_us or (stop_code == PREEMPTED and observation.signaled)
    if observation.stopped and stop_code is not None and unfinished:
        return TaskExit(
            stop_code,
            {
                "exitCode": stop_code,
                "originUserExitCode": origin,
                "caughtException": _stop_message(stop_code),
            },
        )
    if origin == 0:
        return TaskExit(0, {"exitCode": 0, "originUserExitCode": 0})
    if observation.out_of_memory:
        return _over_memory(origin)
    if observation.loss is not None:
        return _with_reason(_LOSSES[observation.loss][0], origin, _LOSSES[observation.loss][1])
    match = match_exit(origin, log_tail)
    info: dict[str, object] = {"exitCode": match.code, "originUserExitCode": origin}
    if match.matched is not None:
        info["matchedUserLogString"] = match.matched
    if match.reason:
        info["caughtException"] = f"{match.reason}."
    if match.solution:
        info["solution"] = f"{match.solution}."
    if observation.forks_refused:
        info["caughtException"] = f"{TOO_MANY_PROCESSES}."
        info["solution"] = f"{FEWER_PROCESSES}."
    if origin == _UPLOAD_FAILED_STATUS and _UPLOAD_FAILED_LINE.search(log_tail):
        info["caughtException"] = _UPLOAD_FAILED
    elif origin == _UPLOAD_FAILED_STATUS and _FILES_LOST_LINE.search(log_tail):
        info["caughtException"] = _FILES_LOST
    last_lines = log_tail[-4096:].decode("utf-8", "replace").splitlines()[-15:]
    info["errorLogs"] = {"user": "\n".join(last_lines), "platform": ""}
    return TaskExit(match.code, info)


def _was_stopped_before_the_program(observation: Observation) -> bool:
    """Whether its supervisor found a stop request before it started the program: no exit status is no 0."""
    return observation.stopped and observation.exit_code is None and observation.signal is None


def _not_launched(stop_code: int | None) -> TaskExit:
    code = stop_code if stop_code is not None else NOT_LAUNCHED
    return TaskExit(code, {"exitCode": code, "caughtException": _stop_message(stop_code)})


_OVER_MEMORY = "The task used more memory than it requested; the kernel killed it or one of its processes."


def out_of_time(time_limit_s: int | None) -> str:
    """Message for a task beyond its time limit, which only an external scheduler knows."""
    limit = f" of {time_limit_s} s" if time_limit_s else ""
    return f"The task was ended because it ran longer than its time limit{limit}."


def _over_memory(origin: int) -> TaskExit:
    exceeded = _with_reason(OVER_MEMORY, origin, _OVER_MEMORY)
    return TaskExit(OVER_MEMORY, {**exceeded.info, "solution": f"{exit_spec(OVER_MEMORY).solution[0]}."})


def _with_reason(code: int, origin: int, reason: str) -> TaskExit:
    return TaskExit(code, {"exitCode": code, "originUserExitCode": origin, "caughtException": reason})


def _lost(observation: Observation) -> TaskExit:
    """Exit of a task without an exit record; the node or an external scheduler may know the reason."""
    code, reason = _LOSSES[observation.loss or Loss.UNKNOWN]
    if observation.timed_out:
        code, reason = OUT_OF_TIME, out_of_time(None)
    elif observation.out_of_memory:
        code, reason = OVER_MEMORY, _OVER_MEMORY
    return TaskExit(code, {"exitCode": code, "caughtException": reason})


def loss_reason(observation: Observation) -> str:
    """Why an attempt was lost, as a message for users."""
    return str(_lost(observation).info["caughtException"])


def _stop_message(stop_code: int | None) -> str:
    if stop_code == STOPPED_BY_USER:
        return STOP_DIAGNOSTICS
    if stop_code == STOPPED_TO_COMPLETE:
        return COMPLETE_DIAGNOSTICS
    if stop_code == PREEMPTED:
        return "The task was preempted by a job whose quota includes the resources it used."
    return "The task could not be launched."
