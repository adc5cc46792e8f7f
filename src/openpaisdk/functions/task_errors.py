"""Errors of a call whose task ended without a result, by what ended it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paiprotocol.errors import PaiError

if TYPE_CHECKING:
    from openpaisdk.client.models import JobStatus, Task


class TaskError(PaiError, RuntimeError):
    """The task of a call ended without a result. ``job``, ``exit_code`` and ``log_end`` say more."""

    code = "TaskError"

    def __init__(
        self, message: str, *, job: str = "", exit_code: int | None = None, log_end: str = "", hint: str = ""
    ):
        super().__init__(message, hint=hint)
        self.job = job
        self.exit_code = exit_code
        self.log_end = log_end
        if log_end:
            self.add_note("The end of its log:\n" + log_end.rstrip("\n"))


class TaskKilled(TaskError):
    """A signal ended the task."""


class TaskOutOfMemory(TaskError):
    """The task needed more memory than it had requested."""


class TaskTimeout(TaskError):
    """The task reached the time limit of its job."""


class TaskLost(TaskError):
    """The cluster lost the task, or never could start it."""


class JobNeverStarts(TaskError):
    """The cluster refused the job: it asks for more than there is, whatever else runs."""


class JobStopped(TaskError):
    """The job was stopped on request."""


class DependencyFailed(TaskError):
    """Another call, whose result this one needed, failed."""


class OtherPython(TaskError):
    """The task has another version of Python than the program that submitted the function."""


class RemoteTraceback(Exception):
    """The traceback of an exception in the task, as the cause of the exception."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def with_source_lines(traceback: str) -> str:
    """A remote traceback with the lines of functions that are in no file, such as those of a notebook.

    The task could not know them; the program that defined the functions does.
    """
    import linecache

    lines = traceback.splitlines(keepends=True)
    found: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found.append(line)
        frame = _FRAME.match(line)
        if frame is None or following.startswith("    "):
            continue
        if source := linecache.getline(frame["file"], int(frame["line"])).strip():
            found.append(f"    {source}\n")
    return "".join(found)


class RemoteError(TaskError):
    """An exception of the function that cannot be rebuilt here: its type and message as text."""

    def __init__(self, message: str, *, type_name: str, job: str = ""):
        super().__init__(message, job=job)
        self.type_name = type_name


_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in ')

# Exit codes that the cluster gives a task, whatever its program returned.
_KINDS: dict[int, type[TaskError]] = {
    -1200: TaskOutOfMemory,
    -1004: TaskTimeout,
    -210: JobStopped,
    -1100: DependencyFailed,
}


def task_error(job: JobStatus, task: Task | None, log_end: str) -> TaskError:
    """The error for a finished task that left no result."""
    from openpaisdk.jobs.outcome import known_solution, outcome_reason

    code = job.exit_code if task is None else task.exit_code
    if task is not None and code is not None and code > 0:  # else the cluster ended it, whatever it returned
        code = task.own_exit_code
    reason = outcome_reason(job) or job.diagnostics.strip().partition("\n")[0]
    kind = _kind(job, code)
    where = job.name if task is None or len(job.tasks) == 1 else f"{job.name}, task {task.index}"
    message = f"The function did not return ({where}): {reason or job.state.lower()}"
    return kind(
        message.rstrip(".") + ".", job=job.name, exit_code=code, log_end=log_end, hint=known_solution(job)
    )


def first_cause(errors: Sequence[BaseException]) -> BaseException:
    """The error that made a call fail, of those of its tasks: the cluster ends the others when one fails."""

    def rank(error: BaseException) -> int:
        if not isinstance(error, TaskError) or error.exit_code is None:
            return 0
        return 2 if error.exit_code in _ENDED_BY_OTHERS else 1

    return min(errors, key=rank)


def ended_error(fields: Mapping[str, Any], *, job: str, call: str, log_end: str) -> TaskError:
    """The error for a call whose process ended, in a task that goes on with other calls."""
    code = int(fields["exit_code"])
    if fields.get("timed_out"):
        kind: type[TaskError] = TaskTimeout
    elif fields.get("out_of_memory"):
        kind = TaskOutOfMemory
    else:
        kind = TaskKilled if code > _LAST_PROGRAM_CODE else TaskError
    message = f"The function did not return ({call}): {fields['message']}."
    return kind(message, job=job, exit_code=code, log_end=log_end)


def _kind(job: JobStatus, code: int | None) -> type[TaskError]:
    if job.state == "STOPPED":
        return JobStopped
    if code is None:
        return TaskError
    if code < 0:
        return _KINDS.get(code, TaskLost)
    return TaskKilled if code > _LAST_PROGRAM_CODE else TaskError


_ENDED_BY_OTHERS = (-210, -220)
"""Exit codes of a task that was ended with its job, on request or because another task failed."""
_LAST_PROGRAM_CODE = 128
"""A shell reports the end by a signal as a larger exit status."""
