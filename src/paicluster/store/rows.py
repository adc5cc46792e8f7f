"""Row types: plain, typed, frozen. Fields are named after the columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from paiprotocol.jobs.states import ExecutionType, JobState

_read_tags = msgspec.json.Decoder(list[str]).decode
_ENDED = frozenset(("AttemptCompleted", "Completed"))


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job. ``tags`` is a JSON array as text, sorted."""

    id: int
    framework: str
    username: str
    name: str
    debug_id: str
    vc: str
    priority: str | None
    state: JobState
    sub_state: str
    execution_type: ExecutionType
    retries: int
    retries_user: int
    retries_platform: int
    platform_streak: int
    retry_delay_s: float | None
    retry_at_ms: int | None
    submission_ms: int
    created_ms: int
    launched_ms: int | None
    completed_ms: int | None
    exit_code: int | None
    total_gpus: int
    total_tasks: int
    total_roles: int
    attempt: int
    generation: str
    tags: str = "[]"
    # Of its last attempt. None: it has not finished, or finished before servers counted them.
    failed_tasks: int | None = None


SummaryRenderer = Callable[[JobRow], str]
"""Renders what lists show of a job. The store keeps the text with the job and does not read it."""


def encode_tags(tags: Iterable[str]) -> str:
    """Tags as stored with a job: a sorted JSON array."""
    return msgspec.json.encode(sorted(set(tags))).decode()


def decode_tags(text: str) -> list[str]:
    return [] if text == "[]" else _read_tags(text)


@dataclass(frozen=True, slots=True)
class JobSpecRow:
    """The submitted text (secrets masked), the JSON that the cluster parses, and the sealed secrets."""

    job_id: int
    config: str
    job: str
    sealed: bytes | None


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """Resources of one task on a node, counted for a virtual cluster."""

    vc: str
    node: str
    cpu: float
    memory_mb: int
    gpus: int
    # Of an opportunistic job, which counts against no quota.
    preemptible: bool = False


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job, as the scheduler compares it. ``resource_request``: encoded at submission."""

    id: int
    vc: str
    username: str
    priority: str | None
    resource_request: str


@dataclass(frozen=True, slots=True)
class AttemptRow:
    job_id: int
    attempt: int
    sub_state: str
    created_ms: int | None = None
    launched_ms: int | None = None
    completed_ms: int | None = None
    exit_code: int | None = None
    exit_type: str | None = None
    trigger_message: str | None = None
    trigger_role: str | None = None
    trigger_index: int | None = None
    diagnostics: str | None = None
    runtime_exit: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One attempt of one task; ``uid`` names the attempt, ``task_uid`` the task across its attempts.

    ``ports``, ``gpus`` and ``exit_info`` are JSON texts. An ended attempt is AttemptCompleted when the task
    is retried, or is to be; the last one is Completed.
    """

    uid: str
    job_id: int
    attempt: int
    role: str
    role_order: int
    task_index: int
    task_attempt: int
    task_uid: str
    sub_state: str
    node: str | None = None
    ip: str | None = None
    ports: str | None = None
    gpus: str | None = None
    cpu: float = 0
    memory_mb: int = 0
    created_ms: int | None = None
    launched_ms: int | None = None
    completed_ms: int | None = None
    exit_code: int | None = None
    exit_info: str | None = None
    retries_total: int = 0
    retries_accountable: int = 0
    stop_requested: bool = False
    lost: bool = False

    @property
    def ended(self) -> bool:
        """Whether this attempt has ended, even if the task is retried."""
        return self.sub_state in _ENDED


@dataclass(frozen=True, slots=True)
class EventRow:
    id: int
    job_id: int
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    task_role: str | None
    task_index: int | None
    first_ms: int
    last_ms: int
    count: int
    source: str
    # Whether it tells why the job is pending.
    pending: bool


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """An unfinished job with the tasks of its current attempt (all attempts of each task)."""

    job: JobRow
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True)
class UserRow:
    """``extension`` is a JSON text. ``disabled_ms``: since when the user is disabled."""

    username: str
    password_hash: str
    email: str
    admin: bool
    extension: str
    created_ms: int
    disabled_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TokenRow:
    """``kind`` is session, of a login, or application."""

    id: str
    username: str
    kind: str
    name: str
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """``extension`` is a JSON text."""

    groupname: str
    description: str
    external_name: str
    extension: str


@dataclass(frozen=True, slots=True)
class UserGrants:
    """What a user may use. An administrator may use every virtual cluster and every storage."""

    admin: bool
    groups: tuple[str, ...]
    clusters: frozenset[str]
    storages: tuple[str, ...]
    # The first storage of each group: the default for files.
    default_storages: tuple[str, ...] = ()

    def may_use(self, vc: str) -> bool:
        return self.admin or vc in self.clusters

    def may_use_storage(self, name: str, groups: Collection[str]) -> bool:
        """Whether the user may use a storage of these groups; without groups all users may."""
        return (
            self.admin or not groups or name in self.storages or any(group in groups for group in self.groups)
        )


@dataclass(frozen=True, slots=True)
class VirtualClusterRow:
    """A virtual cluster as changed at run time; without resources it has those of the settings."""

    name: str
    cpu: int | None
    memory_mb: int | None
    gpu: int | None
    capacity: float | None
    max_capacity: float | None
    status: str = "running"


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """Limits of a user or of all members of a group together; None: not limited."""

    tasks: int | None = None
    cpu: int | None = None
    memory_mb: int | None = None
    gpu: int | None = None
    storage_bytes: int | None = None

    def limits(self) -> dict[str, int | None]:
        """The limits by the name of their column."""
        return {name: getattr(self, name) for name in self.__slots__}
