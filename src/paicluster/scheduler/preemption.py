"""Preemption: which opportunistic jobs are stopped for a job that is within its quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paicluster.scheduler.placement import NodeCapacity, place_tasks
from paicluster.scheduler.resource_requests import ResourceRequest, Resources


@dataclass(frozen=True, slots=True)
class PreemptibleJob:
    """A running opportunistic job and its allocations. ``preempting``: already asked to stop."""

    job_id: int
    allocations: tuple[tuple[str, Resources, tuple[int, ...]], ...]
    preempting: bool = False


class Preemption:
    """Chooses victims, for one plan. What a victim holds is reserved for the job that it is preempted for."""

    def __init__(self, jobs: Sequence[PreemptibleJob]):
        self._running = [job for job in jobs if not job.preempting]
        # Preempted before this plan, or by it.
        self._preempted = [job for job in jobs if job.preempting]
        self._reservations: list[ResourceRequest] = []
        self._reserved: dict[str, Resources] = {}

    def victims_for(
        self, vc: str, request: ResourceRequest, nodes: Sequence[NodeCapacity], quota_left: Resources
    ) -> list[PreemptibleJob]:
        """As few jobs as needed for a job of a virtual cluster that is within its quota; none if the job has
        to wait, or would not fit with all of them preempted either."""
        reserved = self._reserved.get(vc, Resources()).plus(request.minimum)
        if not (self._running or self._preempted) or not reserved.fits(quota_left):
            return []  # the rest of the quota is reserved for earlier jobs
        by_name = {node.name: node.copy() for node in nodes}
        for job in self._preempted:
            _release(by_name, job)
        for earlier in self._reservations:
            place_tasks(list(by_name.values()), earlier)
        self._reserved[vc] = reserved
        self._reservations.append(request if request.gang else _one_task(request))
        victims = self._fewest(by_name, request)
        for victim in victims:
            self._running.remove(victim)
            self._preempted.append(victim)
        return victims

    def _fewest(self, nodes: dict[str, NodeCapacity], request: ResourceRequest) -> list[PreemptibleJob]:
        victims: list[PreemptibleJob] = []
        while not _can_place(nodes, request):
            if len(victims) == len(self._running):
                return []
            victim = self._running[len(victims)]
            victims.append(victim)
            _release(nodes, victim)
        for victim in reversed(victims[:-1]):  # spare those whose resources do not help
            without = {name: node.copy() for name, node in nodes.items()}
            for name, resources, gpus in victim.allocations:
                without[name].undo_release(resources, gpus)
            if _can_place(without, request):
                victims.remove(victim)
                nodes = without
        return victims


def _release(nodes: Mapping[str, NodeCapacity], job: PreemptibleJob) -> None:
    for node, resources, gpus in job.allocations:
        nodes[node].release(resources, gpus)


def _one_task(request: ResourceRequest) -> ResourceRequest:
    role = next(role for role in request.roles if role.each == request.minimum)
    return ResourceRequest((role._replace(instances=1),), gang=False)


def _can_place(nodes: Mapping[str, NodeCapacity], request: ResourceRequest) -> bool:
    placements = place_tasks([node.copy() for node in nodes.values()], request)
    return len(placements) >= (request.tasks if request.gang else 1)
