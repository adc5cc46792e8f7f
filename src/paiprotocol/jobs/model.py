"""Typed, immutable model of a job; everything inside the SDK and the cluster uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from paiprotocol.jobs.completion import RolePolicy
from paiprotocol.jobs.extras import NO_ADDITIONS, Additions
from paiprotocol.jobs.problems import Problem
from paiprotocol.jobs.retries import RetryPolicy

MASK = "******"
"""Replacement of secrets wherever a job is shown or stored."""


class Secrets(Mapping[str, Any]):
    """Secret values by name. ``repr`` shows only the names."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None):
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(f'{name}={MASK}' for name in self._values)})"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of each task of a role. ``ports``: count per label, including ``ssh`` and ``http``."""

    cpu: int
    memory_mb: int
    gpu: int
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """A prerequisite of roles: image, data, output or script. ``fields`` has all its keys, for plugins."""

    name: str
    type: str
    uri: str | tuple[str, ...] | None
    plugin: str | None
    require: tuple[str, ...]
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def auth(self) -> Mapping[str, str] | None:
        """Credentials of an image's registry; the values may refer to ``$secrets``."""
        return self.fields.get("auth")


@dataclass(frozen=True, slots=True)
class TaskRole:
    """A task role. Completion counts are normalised: -1 for never, else a number of tasks."""

    name: str
    instances: int
    min_failed: int
    min_succeeded: int
    task_retry_count: int
    docker_image: str | None
    image_uri: str | None
    resources: Resources
    shm_mb: int | None
    infiniband: bool
    commands: tuple[str, ...]
    pre_commands: tuple[str, ...] = ()
    post_commands: tuple[str, ...] = ()
    data: str | None = None
    output: str | None = None
    script: str | None = None
    prerequisites: tuple[str, ...] = ()

    @property
    def policy(self) -> RolePolicy:
        return RolePolicy(self.name, self.instances, self.min_failed, self.min_succeeded)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment: commands before and after those of the roles."""

    name: str
    pre_commands: Mapping[str, tuple[str, ...]]
    post_commands: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A validated job. ``raw`` is the plain data it was read from, including secrets."""

    name: str
    virtual_cluster: str
    job_retry_count: int
    task_roles: tuple[TaskRole, ...]
    gang: bool
    priority: str | None
    secrets: Secrets
    parameters: Mapping[str, Any]
    prerequisites: tuple[Prerequisite, ...]
    deployments: tuple[Deployment, ...]
    defaults: Mapping[str, Any]
    extras: Mapping[str, Any]
    additions: Additions = NO_ADDITIONS
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def total_tasks(self) -> int:
        return sum(role.instances for role in self.task_roles)

    @property
    def total_gpus(self) -> int:
        return sum(role.instances * role.resources.gpu for role in self.task_roles)

    @property
    def description(self) -> str:
        text: str = self.raw.get("description", "")
        return text

    def role(self, name: str) -> TaskRole:
        """The role of that name; KeyError if there is none."""
        for role in self.task_roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def prerequisite(self, type: str, name: str) -> Prerequisite | None:
        for item in self.prerequisites:
            if item.type == type and item.name == name:
                return item
        return None

    def role_policies(self) -> tuple[RolePolicy, ...]:
        """Completion policies of all roles, for :func:`paiprotocol.jobs.completion.decide`."""
        return tuple(role.policy for role in self.task_roles)

    def retry_policy(self) -> RetryPolicy:
        """Retry policy of the job, for :func:`paiprotocol.jobs.retries.decide_retry`."""
        return RetryPolicy.of_job(self.job_retry_count)

    def task_retry_policy(self, role: str) -> RetryPolicy:
        return RetryPolicy.of_task(self.role(role).task_retry_count, gang=self.gang)
