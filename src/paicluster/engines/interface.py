"""The engine contract. The controller uses the write side (`Engine`), the API the read side (`LogSource`).

What not every engine can do is a capability: a small runtime-checkable protocol of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paicluster.metrics.usage import UsageReading
from paiprotocol.errors import PaiError
from paiprotocol.jobs.ports import PORT_END, PORT_START


class LaunchFailed(PaiError):
    """A gang could not be launched; no task of it runs. ``transient``: a retry may help."""

    code = "LaunchFailed"

    def __init__(self, message: str, *, transient: bool = True):
        super().__init__(message)
        self.transient = transient

    @classmethod
    def not_written(cls, error: OSError) -> LaunchFailed:
        where = f" ({error.filename})" if error.filename else ""
        return cls(f"The tasks' folders could not be written: {error.strerror}{where}.")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that runs tasks, with its total resources."""

    name: str
    ip: str
    cpu: int
    memory_mb: int
    gpus: tuple[int, ...] = ()
    # Ports outside the range from which the kernel serves outgoing connections.
    non_ephemeral_ports: range = range(PORT_START, PORT_END)


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Login at an image registry. ``registry`` empty: the one in the image's name."""

    username: str
    password: str = field(repr=False)
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a task runs: node, address, ports by label, GPUs."""

    node: str
    ip: str
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placeholders:
    """Texts in the environments of a gang that the engine replaces once a task has its placement.

    Each text is unique: one for the address, one for each port by label, one for the list of GPUs.
    """

    ip: str
    ports: Mapping[str, tuple[str, ...]]
    gpus: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node, mounted at ``target`` in a task's container."""

    source: Path
    target: str
    read_only: bool = False
    # Create the folder if it does not exist.
    create: bool = False


@dataclass(frozen=True, slots=True)
class StorageMount:
    """A storage that a process beside the task mounts at ``target``.

    ``data`` describes it as OpenPAI does, with its credentials.
    """

    name: str
    kind: str
    target: str
    # Variable of the task that has the path.
    variable: str
    data: Mapping[str, Any] = field(repr=False)
    # Folder of the storage that the task sees; empty: all of it.
    sub_folder: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class OutputUpload:
    """Where a task's outputs are uploaded when it ends.

    ``address`` is the URL of the WebHDFS service. ``patterns`` select files of the working folder, in
    addition to the output folder.
    """

    address: str
    token: str = field(repr=False)
    target: str
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """Everything an engine needs to start one task attempt."""

    uid: str
    # Empty for an engine that schedules itself; ``placeholders`` are then replaced.
    node: str
    script: str
    environment: Mapping[str, str]
    # Variables that all tasks of a gang share: one object for all of them.
    shared_environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sources: Path | None = None
    # None: the task runs on the host.
    image: str | None = None
    login: RegistryLogin | None = field(default=None, repr=False)
    cpu: int = 1
    memory_mb: int = 0
    shm_mb: int | None = None
    gpus: tuple[int, ...] = ()
    # Number of GPUs, also where it is not yet known which.
    gpu_count: int = 0
    ports: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    output_upload: OutputUpload | None = None
    # Folders of the node in the task's container.
    mounts: tuple[Mount, ...] = ()
    # Storages to mount before the start; the task fails if one cannot be mounted.
    storage_mounts: tuple[StorageMount, ...] = ()
    # From the start; then SIGTERM, then SIGKILL.
    time_limit_s: int | None = None
    # The job's user, virtual cluster and name.
    owner: str = ""
    vc: str = ""
    job: str = ""
    # Consecutive tasks of the gang that belong to one node.
    tasks_per_node: int = 1
    # Options of the job by kind of engine, as the job has them.
    options: Mapping[str, Any] = field(default_factory=dict)
    placeholders: Placeholders | None = None


class Phase(Enum):
    ABSENT = "absent"  # not started; launching again is safe
    QUEUED = "queued"  # submitted to an external scheduler, or about to start there
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # started, then lost without an exit record; no process is left


class Loss(Enum):
    """Why an attempt was lost, where that is known."""

    UNKNOWN = "unknown"
    NODE = "node"  # its node failed
    PREEMPTED = "preempted"  # another job preempted it
    CANCELLED = "cancelled"  # ended with the external scheduler's own command
    WITHDRAWN = "withdrawn"  # cancelled there by its own user: not to be retried
    NOT_STARTED = "not-started"  # it never started on its node
    DAEMON = "daemon"  # the container daemon ended


@dataclass(frozen=True, slots=True)
class Observation:
    """State of an attempt as the engine sees it now."""

    phase: Phase
    started_ms: int | None = None
    ended_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # Why the program could not be started.
    start_error: str = ""
    # Why the engine will never run the attempt. It never started.
    rejection: str = ""
    # `stop` was called before it ended.
    stopped: bool = False
    # The supervisor sent a signal while the program was running.
    signaled: bool = False
    # The supervisor sent the signal that ended it.
    killed_by_us: bool = False
    # It reached its time limit before it ended.
    timed_out: bool = False
    # It failed, and the kernel had killed one of its processes for lack of memory.
    out_of_memory: bool = False
    # It failed, and it had as many processes as allowed.
    forks_refused: bool = False
    # A code of the exit table, where the engine knows more than the program's exit status tells.
    platform_code: int | None = None
    # What ended it, if neither the program nor the cluster did. Always set for LOST.
    loss: Loss | None = None
    # Where it runs, once known; only from engines that schedule themselves.
    placement: Placement | None = None


ABSENT = Observation(Phase.ABSENT)

# Called with an attempt's uid when its state may have changed.
Hint = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the owner of a job; it becomes an event of the job."""

    reason: str
    message: str
    type: str = "Normal"
    # Whether it tells why the job is pending.
    pending: bool = False


# Called with an attempt's uid and a notice about it.
Notify = Callable[[str, Notice], None]


def ignore_notice(uid: str, notice: Notice) -> None:
    """A `Notify` that discards notices."""


class Engine(Protocol):
    """The write side. Every call is idempotent: after a crash the controller calls it again."""

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        """Start the engine.

        ``hint(uid)`` is called on the event loop when an attempt may have changed, ``notify(uid, notice)``,
        also there, when the owner of the attempt should know something.
        """

    async def close(self) -> None:
        """Release everything but the tasks, which keep running."""

    def nodes(self) -> Sequence[Node]: ...

    def notices(self) -> Sequence[Notice]:
        """Requests that this engine cannot honour, for no job; each job gets them as events."""

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        """Whether these ports can be bound on that node now.

        ``non_ephemeral``: and none is in the kernel's range for outgoing connections, so that they will still
        be free when the task binds them.
        """

    def has(self, uid: str) -> bool:
        """Whether this engine has the attempt, including one that was stopped before it started.

        After a restart the engine of an attempt is found this way: no two engines may keep their attempts in
        the same folder.
        """

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        """Start all, or none (LaunchFailed). A uid that was launched before is not changed."""

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]: ...

    async def log_tail(self, uid: str, size: int) -> bytes:
        """The last bytes of an attempt's output, to explain its failure."""

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        """SIGTERM, then SIGKILL after ``grace_s``. An attempt that has not started will never start."""

    async def remove(self, uids: Sequence[str]) -> None:
        """Delete ended attempts with their logs and files."""

    async def sizes(self) -> dict[str, int]:
        """Disk usage of each attempt in bytes, by uid."""


class LogSource(Protocol):
    """The read side, used by the API."""

    def log_folder(self, uid: str) -> Path:
        """Folder of an attempt's log segments."""

    def may_stall(self, uid: str) -> bool:
        """Whether `log_folder`, and reads of it, may wait long: then never on the event loop."""


@runtime_checkable
class PreparesLaunch(Protocol):
    """Capability: prepare a gang while the intent to launch it is being committed."""

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        """Like `launch`, but nothing starts before ``committed`` is true. If it is false, or the server dies
        before, nothing was started and nothing is left."""


@runtime_checkable
class RunsImages(Protocol):
    """Capability: run tasks in the image that their job names, or notify why not."""

    @property
    def runs_images(self) -> bool:
        """Whether images can be used, as far as is known now."""


@runtime_checkable
class CancellableLaunch(Protocol):
    """Capability: `launch` may take long (an image is pulled) and can be cancelled."""

    def cancel_launches(self) -> None:
        """Cancel all pending launches; nothing of them was started."""


@runtime_checkable
class SelfScheduling(Protocol):
    """Capability: place tasks without our scheduler.

    The engine gets whole gangs without nodes, ports and GPUs, queues them (QUEUED) until resources are free,
    and reports the placement of each task with its observation. If the external scheduler is unavailable,
    `launch` does not fail: the gang stays queued and a notice says why.
    """

    schedules_itself: bool


@dataclass(frozen=True, slots=True)
class FreeNode:
    """A node, and what is free on it now."""

    name: str
    cpu: int
    memory_mb: int
    gpus: int
    free_cpu: int
    free_memory_mb: int
    free_gpus: int


@dataclass(frozen=True, slots=True)
class FreeNodes:
    """Free resources of some nodes, at one moment.

    ``counted``: attempts whose resources are not free any more there; those of others are to be subtracted.
    """

    nodes: Sequence[FreeNode]
    counted: Set[str]


@runtime_checkable
class AdmittedByUs(Protocol):
    """Capability: our scheduler decides when a gang starts, and the engine's own one where.

    Such an engine is a `SelfScheduling` one, too. What is launched should fit, by what `free_nodes` said.
    """

    def pool_of(self, vc: str) -> str:
        """Name of the nodes that the jobs of a virtual cluster may use."""

    def free_nodes(self, pool: str) -> FreeNodes | None:
        """None: it cannot be known; then everything is launched at once, and queued there."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """``listener`` is called when more may be free, not more than once a second."""


@runtime_checkable
class DynamicNodes(Protocol):
    """Capability: nodes that an external scheduler manages and that change at any time."""

    async def refresh_nodes(self) -> None:
        """Re-query the external scheduler unless it was queried recently. After a short timeout `nodes` is
        unchanged."""


class LaunchBundle(Protocol):
    """Files that a task downloads before it starts."""

    def chunks(self) -> Iterator[bytes]:
        """The bundle as a tar, in chunks."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """New end of a log stream, and the stop request of its task, if there is one."""

    end: int
    stop: Mapping[str, Any] | None = None


MAX_USAGE_REPORT_BYTES = 1 << 10
"""As long as the file that a task keeps of its usage."""


class ReportSink(Protocol):
    """Reports from tasks on nodes without a shared file system.

    Every call is idempotent; `Conflict` means that the attempt has already ended.
    ``uid`` is the attempt's; for `launch_bundle` and `record_diagnostics` that of the first task of the gang.
    """

    def allows(self, uid: str, ticket: str) -> bool:
        """Whether the ticket belongs to the attempt's gang."""

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> LaunchBundle:
        """The bundle of the batch script, or with ``component`` that of one task of the gang."""

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None: ...

    async def place(self, uid: str, offer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        """Store where a task of a gang runs; the placements of the whole gang once all are known.

        None: not yet; the task asks again. For engines whose tasks learn of each other from the server.
        """

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        """Write data of a stream at offset ``at``.

        The bytes from ``after`` to there were dropped by the task.
        """

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Store the exit record.

        None: stored. Else the ends of the streams, which must reach ``sizes`` first.
        """

    async def record_usage(self, uid: str, data: bytes) -> None:
        """Store what a running task has used so far, as its supervisor wrote it."""

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        """Store error output of the batch script, outside of all tasks."""


@runtime_checkable
class ReportsOverHttp(Protocol):
    """Capability: tasks download their files from the server and report to it."""

    reports: ReportSink


@runtime_checkable
class Exec(Protocol):
    """Capability: run a command in a running attempt."""

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        """Command line for the server's machine that runs ``command`` where the attempt runs, in its folder,
        with its environment and limits; standard streams and exit status pass through.

        ``terminal``: with a terminal of its own.
        """

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str]:
        """Command line, for the server's machine, that starts the host of a session in the attempt.

        It gets the connection as its standard input and serves one session
        (docs/contributing/exec-and-forward.md). ``terminal``: the session's command has a terminal.
        """


@runtime_checkable
class Forward(Protocol):
    """Capability: connect clients with ports of a running attempt."""

    def forward_command(self, uid: str) -> Sequence[str]:
        """Command line, for the server's machine, that starts a forwarder of the attempt's ports.

        It gets a control socket as its standard input (docs/contributing/exec-and-forward.md).
        """


@runtime_checkable
class MeasuresUsage(Protocol):
    """Capability: measure what running attempts and the engine's nodes use."""

    async def usage(self, uids: Sequence[str]) -> UsageReading:
        """Usage up to now of these running attempts and of all nodes; without those that are unknown."""
