"""States of jobs and tasks as users see them."""

from __future__ import annotations

from enum import StrEnum
from hashlib import md5
from typing import Literal

JobState = Literal["WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN"]
ExecutionType = Literal["START", "STOP"]
"""What a user wants of a job."""

STOP_CODES = frozenset((-210, -220))
"""Exit codes that mean "stopped on purpose" rather than "failed"."""


class SubState(StrEnum):
    """States of an attempt, of a job or a task."""

    CREATION_PENDING = "AttemptCreationPending"
    CREATION_REQUESTED = "AttemptCreationRequested"
    PREPARING = "AttemptPreparing"
    RUNNING = "AttemptRunning"
    DELETION_PENDING = "AttemptDeletionPending"
    DELETION_REQUESTED = "AttemptDeletionRequested"
    DELETING = "AttemptDeleting"
    ATTEMPT_COMPLETED = "AttemptCompleted"
    COMPLETED = "Completed"


_WAITING = frozenset(("AttemptCreationPending", "AttemptCreationRequested", "AttemptPreparing"))
_DELETING = frozenset(("AttemptDeletionPending", "AttemptDeletionRequested", "AttemptDeleting"))


def _final_state(exit_code: int | None) -> JobState:
    if exit_code == 0:
        return "SUCCEEDED"
    return "STOPPED" if exit_code in STOP_CODES else "FAILED"


def _state(sub_state: SubState | str, exit_code: int | None, *, attempt: bool) -> JobState:
    name = sub_state.value if isinstance(sub_state, SubState) else sub_state
    if name in _WAITING:
        return "WAITING"
    if name == "AttemptRunning":
        return "RUNNING"
    if name == "Completed" or (attempt and name == "AttemptCompleted"):
        return _final_state(exit_code)
    if name in _DELETING or name == "AttemptCompleted":
        return "STOPPING" if exit_code in STOP_CODES else "RUNNING"
    return "UNKNOWN"


def job_state(sub_state: SubState | str, exit_code: int | None) -> JobState:
    """State of a job or task as users see it; a finished attempt may be retried, so the job goes on."""
    return _state(sub_state, exit_code, attempt=False)


def attempt_state(sub_state: SubState | str, exit_code: int | None) -> JobState:
    """Like :func:`job_state`, but a completed attempt already shows how it ended."""
    return _state(sub_state, exit_code, attempt=True)


def framework_name(user: str, job: str) -> str:
    """Name of a job that is unique in the cluster: ``user~job``."""
    return f"{user}~{job}"


def split_framework(name: str) -> tuple[str, str]:
    """``user~job`` to its parts. A name without ``~`` has no user: ``""``."""
    user, tilde, job = name.partition("~")
    return (user, job) if tilde else ("", name)


def debug_id(framework: str) -> str:
    """The framework name as clusters encode it: md5 of ``user~job``; a bare name is lowered and stripped."""
    if "~" not in framework:
        return "".join(c for c in framework.lower() if c.isascii() and c.isalnum())
    return md5(framework.encode(), usedforsecurity=False).hexdigest()
