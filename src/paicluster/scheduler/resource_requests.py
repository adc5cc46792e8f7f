"""Resource requests in the form the scheduler compares: jobs that request the same have equal requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.states import framework_name


class Resources(NamedTuple):
    """Cores, memory and GPUs."""

    cpu: int = 0
    memory_mb: int = 0
    gpu: int = 0

    def plus(self, other: Resources, times: int = 1) -> Resources:
        return Resources(
            self.cpu + other.cpu * times,
            self.memory_mb + other.memory_mb * times,
            self.gpu + other.gpu * times,
        )

    def minus(self, other: Resources) -> Resources:
        return Resources(self.cpu - other.cpu, self.memory_mb - other.memory_mb, self.gpu - other.gpu)

    def at_least(self, minimum: Resources) -> Resources:
        return Resources(*map(max, self, minimum))

    def fits(self, free: Resources) -> bool:
        return self.cpu <= free.cpu and self.memory_mb <= free.memory_mb and self.gpu <= free.gpu

    def dominant_share(self, total: Resources) -> float:
        """Dominant share (DRF): the largest fraction of any single resource."""
        return max(
            self.cpu / total.cpu if total.cpu else 0.0,
            self.memory_mb / total.memory_mb if total.memory_mb else 0.0,
            self.gpu / total.gpu if total.gpu else 0.0,
        )


NO_MINIMUM = Resources()
# What every task holds at least, where limits are enforced: a task that requests nothing still takes a core
# and memory from others. The memory is that of a shell with a small program.
MINIMUM = Resources(cpu=1, memory_mb=16)


class RoleRequest(NamedTuple):
    """Tasks of one role: how many, and the resources of each."""

    role: str
    instances: int
    each: Resources


@dataclass(frozen=True)
class ResourceRequest:
    """Shape of a job. ``gang``: all tasks or none. ``limit``: maximum of concurrent tasks, 0 for no limit."""

    roles: tuple[RoleRequest, ...]
    gang: bool = True
    limit: int = 0

    @cached_property
    def tasks(self) -> int:
        return sum(role.instances for role in self.roles)

    @cached_property
    def total(self) -> Resources:
        total = Resources()
        for role in self.roles:
            total = total.plus(role.each, role.instances)
        return total

    @cached_property
    def minimum(self) -> Resources:
        """The least with which the job can start: all tasks of a gang, else its smallest task."""
        if self.gang:
            return self.total
        return min((role.each for role in self.roles), key=lambda each: (each.gpu, each.cpu, each.memory_mb))


class Dependency(NamedTuple):
    """A job, by its full name, that must finish first; ``success``: it must also have succeeded."""

    framework: str
    success: bool


class SchedulingRequest(NamedTuple):
    """Everything the scheduler needs to know of a job: its resource request and its dependencies."""

    resources: ResourceRequest
    dependencies: tuple[Dependency, ...] = ()


def request_of(job: JobSpec, username: str, minimum: Resources = NO_MINIMUM) -> SchedulingRequest:
    """Request of a job, with at least ``minimum`` for each task.

    A dependency without an owner refers to a job of the same user.
    """
    resources = ResourceRequest(
        tuple(
            RoleRequest(role.name, role.instances, Resources(r.cpu, r.memory_mb, r.gpu).at_least(minimum))
            for role in job.task_roles
            for r in (role.resources,)
        ),
        job.gang,
        0 if job.gang else job.additions.array_limit,
    )
    dependencies = tuple(
        Dependency(item.job if "~" in item.job else framework_name(username, item.job), item.requires_success)
        for item in job.additions.dependencies
    )
    return SchedulingRequest(resources, dependencies)


@lru_cache(maxsize=4096)
def encode(request: SchedulingRequest) -> str:
    """As stored in the database."""
    resources, dependencies = request
    roles = [[role.role, role.instances, *role.each] for role in resources.roles]
    document: dict[str, object] = {"roles": roles, "gang": resources.gang, "limit": resources.limit}
    if dependencies:
        document["after"] = dependencies
    return json.dumps(document, separators=(",", ":"))


@lru_cache(maxsize=4096)
def decode(text: str) -> SchedulingRequest:
    """Inverse of `encode`. Equal texts give the same object, so that requests compare by identity."""
    document = json.loads(text)
    resources = ResourceRequest(
        tuple(
            RoleRequest(name, count, Resources(cpu, mb, gpu))
            for name, count, cpu, mb, gpu in document["roles"]
        ),
        document["gang"],
        document["limit"],
    )
    return SchedulingRequest(resources, tuple(Dependency(*item) for item in document.get("after", ())))
