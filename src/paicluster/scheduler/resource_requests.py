"""What a job needs, in the form the scheduler compares: two jobs that need the same have equal needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from openpaisdk.protocol import JobSpec
from openpaisdk.protocol.states import framework_name


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

    def fits(self, room: Resources) -> bool:
        return self.cpu <= room.cpu and self.memory_mb <= room.memory_mb and self.gpu <= room.gpu

    def dominant_share(self, total: Resources) -> float:
        """The largest part it takes of any resource of the total."""
        return max(
            self.cpu / total.cpu if total.cpu else 0.0,
            self.memory_mb / total.memory_mb if total.memory_mb else 0.0,
            self.gpu / total.gpu if total.gpu else 0.0,
        )


class RoleRequest(NamedTuple):
    """So many tasks of a role, each with this amount."""

    role: str
    instances: int
    each: Resources


@dataclass(frozen=True)
class ResourceRequest:
    """The shape of a job. ``gang``: all tasks or none. ``limit``: tasks at a time, 0 for any number."""

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
    def smallest(self) -> Resources:
        """The least that lets something of it start: everything for a gang, else its lightest task."""
        if self.gang:
            return self.total
        return min((role.each for role in self.roles), key=lambda each: (each.gpu, each.cpu, each.memory_mb))


class Dependency(NamedTuple):
    """A job, by its full name, that must be over first; ``success``: and have succeeded."""

    framework: str
    success: bool


class SchedulingRequest(NamedTuple):
    """All that the scheduler wants to know of a job: what it needs, and what it waits for before that."""

    need: ResourceRequest
    after: tuple[Dependency, ...] = ()


def request_of(job: JobSpec, username: str) -> SchedulingRequest:
    """A dependency without an owner is on a job of the same user."""
    need = ResourceRequest(
        tuple(
            RoleRequest(role.name, role.instances, Resources(r.cpu, r.memory_mb, r.gpu))
            for role in job.task_roles
            for r in (role.resources,)
        ),
        job.gang,
        0 if job.gang else job.additions.array_limit,
    )
    after = tuple(
        Dependency(item.job if "~" in item.job else framework_name(username, item.job), item.requires_success)
        for item in job.additions.dependencies
    )
    return SchedulingRequest(need, after)


@lru_cache(maxsize=4096)
def encode(request: SchedulingRequest) -> str:
    need, after = request
    roles = [[role.role, role.instances, *role.each] for role in need.roles]
    told: dict[str, object] = {"roles": roles, "gang": need.gang, "limit": need.limit}
    if after:
        told["after"] = after
    return json.dumps(told, separators=(",", ":"))


@lru_cache(maxsize=4096)
def decode(text: str) -> SchedulingRequest:
    """Jobs of the same shape get the same object: comparing them is then quick."""
    told = json.loads(text)
    need = ResourceRequest(
        tuple(
            RoleRequest(name, count, Resources(cpu, mb, gpu)) for name, count, cpu, mb, gpu in told["roles"]
        ),
        told["gang"],
        told["limit"],
    )
    return SchedulingRequest(need, tuple(Dependency(*item) for item in told.get("after", ())))
