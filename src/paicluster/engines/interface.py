"""What every engine can do. The controller drives the write side; the API only reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from openpaisdk.errors import PaiError


class LaunchFailed(PaiError):
    """A gang could not be launched; nothing of it runs. ``transient``: trying again may help."""

    code = "LaunchFailed"

    def __init__(self, message: str, *, transient: bool = True):
        super().__init__(message)
        self.transient = transient


@dataclass(frozen=True, slots=True)
class Node:
    """A machine tasks can be placed on, with what it has in all."""

    name: str
    ip: str
    cpu: int
    memory_mb: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """Everything an engine needs to start one task attempt."""

    uid: str
    node: str
    script: str
    environment: Mapping[str, str]
    # The part of the environment that all tasks of a gang have in common: one object for all of them.
    shared_environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sources: Path | None = None
    image: str | None = None
    cpu: int = 1
    memory_mb: int = 0
    gpus: tuple[int, ...] = ()
    # Counted from the start; then asked to end, then killed.
    time_limit_s: int | None = None


class Phase(Enum):
    ABSENT = "absent"  # not started; launching it again is safe
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # started, and gone without telling how it ended; nothing of it is left


@dataclass(frozen=True, slots=True)
class Observation:
    """What is true of an attempt now."""

    phase: Phase
    started_ms: int | None = None
    ended_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # Why the program could not be started at all.
    start_error: str = ""
    # We were told to stop it before it ended.
    stopped: bool = False
    # We sent the signal that ended it.
    killed_by_us: bool = False
    # It had used up its time before it ended.
    timed_out: bool = False
    # It failed, and the kernel had killed some of it for want of memory.
    over_memory: bool = False


ABSENT = Observation(Phase.ABSENT)

Hint = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Remark:
    """What people should know about how their jobs run here; it becomes an event of the job."""

    reason: str
    message: str
    type: str = "Normal"


class Engine(Protocol):
    """The write side. Every call is idempotent: after a crash the controller simply calls again."""

    async def start(self, hint: Hint) -> None:
        """Make ready. ``hint(uid)`` is called on the event loop when an attempt may have changed."""

    async def close(self) -> None:
        """Let go of everything but the tasks, which go on."""

    def nodes(self) -> Sequence[Node]: ...

    def remarks(self) -> Sequence[Remark]:
        """What of a job's wishes this engine cannot honour; the same for all jobs."""

    def ports_free(self, node: str, ports: Sequence[int], *, lasting: bool) -> bool:
        """Whether these ports can be bound on that node now.

        ``lasting``: and are none that the node gives to whoever connects somewhere, so that they will
        still be free when the task binds them.
        """

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        """Start all, or none (LaunchFailed). A uid that was launched before is left as it is."""

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]: ...

    async def log_tail(self, uid: str, size: int) -> bytes:
        """The end of what an attempt wrote, to find out why it failed."""

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        """Ask, wait that long, then kill. An attempt that never started never will."""

    async def remove(self, uids: Sequence[str]) -> None:
        """Forget attempts that ended, with their logs and files."""

    async def sizes(self) -> dict[str, int]:
        """How many bytes the files of each attempt take."""


class LogSource(Protocol):
    """The read side that the API uses."""

    def log_folder(self, uid: str) -> Path:
        """The folder that holds the log segments of an attempt."""
