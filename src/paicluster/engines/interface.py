"""What every engine can do. The controller drives the write side; the API only reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from openpaisdk.errors import PaiError
from openpaisdk.protocol.ports import PORT_END, PORT_START


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
    # Ports that it gives to nobody who merely connects somewhere, where all that tasks get must be such.
    non_ephemeral_ports: range = range(PORT_START, PORT_END)


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """How to log in where an image comes from. ``registry`` empty: where the image's own name points."""

    username: str
    password: str = field(repr=False)
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a task came to run: on a node, by this address, with these ports (by label) and GPUs."""

    node: str
    ip: str
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placeholders:
    """What stands in the environments of a gang for what will be known of a task when it has a place.

    Each is a text that occurs nowhere else: the address, each port by label, and the list of its GPUs.
    """

    ip: str
    ports: Mapping[str, tuple[str, ...]]
    gpus: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node that a task in a container finds at ``target``."""

    source: Path
    target: str
    read_only: bool = False
    # The folder is made when it is not there.
    create: bool = False


@dataclass(frozen=True, slots=True)
class OutputUpload:
    """Where on the storage a task's results are brought when it ends.

    ``address`` is that of the WebHDFS service; ``named`` are patterns of files in the working folder, kept
    beside what is in the folder for results.
    """

    address: str
    token: str = field(repr=False)
    target: str
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """Everything an engine needs to start one task attempt."""

    uid: str
    # Empty for an engine that finds a place itself; ``blanks`` then says what is to be filled in.
    node: str
    script: str
    environment: Mapping[str, str]
    # The part of the environment that all tasks of a gang have in common: one object for all of them.
    shared_environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sources: Path | None = None
    # None: on the host itself.
    image: str | None = None
    login: RegistryLogin | None = field(default=None, repr=False)
    cpu: int = 1
    memory_mb: int = 0
    shm_mb: int | None = None
    gpus: tuple[int, ...] = ()
    # How many, also where it is not yet known which.
    gpu_count: int = 0
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    output_upload: OutputUpload | None = None
    # What it finds in its container beside the image.
    mounts: tuple[Mount, ...] = ()
    # Counted from the start; then asked to end, then killed.
    time_limit_s: int | None = None
    # Who submitted the job, where, and under which name.
    owner: str = ""
    vc: str = ""
    job: str = ""
    # What the job says to this kind of engine and to no other.
    options: Mapping[str, Any] = field(default_factory=dict)
    placeholders: Placeholders | None = None


class Phase(Enum):
    ABSENT = "absent"  # not started; launching it again is safe
    QUEUED = "queued"  # handed over to what schedules itself, or about to start there
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # started, and gone without telling how it ended; nothing of it is left


class Loss(Enum):
    """What took an attempt away, where that is known."""

    UNKNOWN = "unknown"
    NODE = "node"  # its machine failed
    PREEMPTED = "preempted"  # it had to give way to another
    CANCELLED = "cancelled"  # somebody ended it, past us
    WITHDRAWN = "withdrawn"  # somebody cancelled it, past us, and wants it no more
    NOT_STARTED = "unbegun"  # it never began where it was to run
    DAEMON = "daemon"  # what ran its container ended


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
    # Nobody will ever run it as it is, and why. It never started.
    rejection: str = ""
    # We were told to stop it before it ended.
    stopped: bool = False
    # We sent it a signal while its program still ran.
    signaled: bool = False
    # We sent the signal that ended it.
    killed_by_us: bool = False
    # It had used up its time before it ended.
    timed_out: bool = False
    # It failed, and the kernel had killed some of it for want of memory.
    out_of_memory: bool = False
    # A code of the exit table, where the engine knows better why it ended than the program's status tells.
    platform_code: int | None = None
    # Not the program ended it, nor we: this did. Always so of one that is LOST.
    loss: Loss | None = None
    # Where it runs, once that is known; only of engines that find the place themselves.
    placement: Placement | None = None


ABSENT = Observation(Phase.ABSENT)

Hint = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """What people should know about how their jobs run here; it becomes an event of the job."""

    reason: str
    message: str
    type: str = "Normal"


Notify = Callable[[str, Notice], None]


def ignore_notice(uid: str, notice: Notice) -> None:
    """Where nobody wants to know."""


class Engine(Protocol):
    """The write side. Every call is idempotent: after a crash the controller simply calls again."""

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        """Make ready.

        ``hint(uid)`` is called on the event loop when an attempt may have changed; ``say(uid, remark)``, also
        there, when the people who own the attempt should know something: it becomes an event of their job.
        """

    async def close(self) -> None:
        """Let go of everything but the tasks, which go on."""

    def nodes(self) -> Sequence[Node]: ...

    def notices(self) -> Sequence[Notice]:
        """What of a job's wishes this engine cannot honour; the same for all jobs."""

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        """Whether these ports can be bound on that node now.

        ``lasting``: and are none that the node gives to whoever connects somewhere, so that they will
        still be free when the task binds them.
        """

    def has(self, uid: str) -> bool:
        """Whether this engine has anything of that attempt, be it that it was stopped before it started.

        It is how the engine of an attempt is found again after a restart: no two engines may keep
        their attempts in the same folder.
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


@runtime_checkable
class PreparesLaunch(Protocol):
    """An engine that can make a gang ready while the decision to launch it is on its way to disk."""

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        """As `launch`, but nothing starts before ``certain`` is true. Where it turns out false, or the server
        dies before, nothing of it was started and nothing of it is left."""


@runtime_checkable
class RunsImages(Protocol):
    """An engine whose tasks run in the image that their job names, or which says why they do not."""

    @property
    def runs_images(self) -> bool:
        """Whether they would, as far as is known now."""


@runtime_checkable
class CancellableLaunch(Protocol):
    """An engine whose `launch` may wait for something from elsewhere, as for an image."""

    def cancel_launches(self) -> None:
        """Not any longer: whoever waits is cancelled, and nothing of it was started."""


@runtime_checkable
class SelfScheduling(Protocol):
    """An engine that finds the places itself.

    It is given whole gangs without nodes, ports and GPUs, keeps them (QUEUED) until there is room, and tells
    the place of each task with its observation. What it needs to be asked for may be down: then `launch` does
    not fail, the gang waits, and `say` tells why.
    """

    schedules_itself: bool


@runtime_checkable
class DynamicNodes(Protocol):
    """An engine whose nodes somebody else looks after, and takes away or gives back at any time."""

    async def refresh_nodes(self) -> None:
        """Ask him, if that was not done just now. It is not waited for long: then `nodes` is as it was."""


class LaunchBundle(Protocol):
    """What a task fetches before it begins."""

    def chunks(self) -> Iterator[bytes]:
        """A tar, piece by piece."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """How far a stream now goes, and how its task is to stop, if it is to."""

    end: int
    stop: Mapping[str, Any] | None = None


class ReportSink(Protocol):
    """What tasks say that run where nothing of ours is seen. All may be said again; Conflict: it is too late.

    ``uid`` is an attempt's, for `parcel` and `words` that of the first of its gang.
    """

    def allows(self, uid: str, ticket: str) -> bool:
        """Whether this ticket is that of the attempt's gang."""

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> LaunchBundle:
        """For the batch script, or for one of several tasks."""

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None: ...

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        """What stands in a stream at an offset. From ``after`` until there, the task has nothing any more."""

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """None: it is taken. Else how far the streams go, because they should go as far as ``sizes``."""

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        """What went wrong beside the tasks."""


@runtime_checkable
class ReportsOverHttp(Protocol):
    """An engine whose tasks fetch what they need from the server, and report to it."""

    reports: ReportSink


@runtime_checkable
class Exec(Protocol):
    """An engine that can run a command beside a running attempt."""

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        """The words to run on the server's machine so that ``command`` runs where the attempt does, in its
        folder, with its environment and limits; standard streams and exit status pass through.

        ``terminal``: it is to have a terminal of its own.
        """
