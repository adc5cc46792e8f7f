"""Allocations: resources on each node held by tasks that are not known to have exited, and their owners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from paicluster.engines.interface import Node
from paicluster.scheduler.placement import NodeCapacity
from paicluster.scheduler.quota_limits import HeldResources
from paicluster.scheduler.resource_requests import Resources
from paicluster.store.rows import TaskRow


@dataclass(frozen=True, slots=True)
class AllocationOwner:
    """Whose usage a task counts as. ``preemptible``: opportunistic, outside of any quota."""

    vc: str
    user: str
    preemptible: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one task holds."""

    job_id: int
    node: str
    resources: Resources
    gpus: tuple[int, ...]
    ports: tuple[int, ...]
    owner: AllocationOwner


class Allocations:
    """Allocations by task, with sums per node, virtual cluster and user.

    Tasks that an external scheduler places hold nothing on our nodes and count only in ``running``; where we
    decide when they start, also for their virtual cluster and user.

    Every entry updates every sum, so that sums are never recomputed.
    """

    def __init__(self, admitted: Set[str] = frozenset()) -> None:
        """``admitted``: virtual clusters whose tasks an external scheduler places, but when we say so."""
        self._admitted_vcs = admitted
        self._by_task: dict[str, Allocation] = {}
        self._ports: set[int] = set()
        self.by_node: dict[str, Resources] = {}
        self.by_vc: dict[str, Resources] = {}
        self.by_user: dict[str, Resources] = {}
        # Tasks of each user and what they hold, which counts against quotas.
        self.running: dict[str, HeldResources] = {}
        self._delegated: dict[str, tuple[str, HeldResources]] = {}
        self._admitted: dict[str, tuple[AllocationOwner, Resources]] = {}

    def clear(self) -> None:
        for entries in (
            self._by_task,
            self.by_node,
            self.by_vc,
            self.by_user,
            self.running,
            self._delegated,
            self._admitted,
        ):
            entries.clear()
        self._ports.clear()

    def allocate(self, task: TaskRow, owner: AllocationOwner) -> None:
        if task.uid in self._by_task:
            return
        ports = tuple(port for numbers in json.loads(task.ports or "{}").values() for port in numbers)
        gpus = tuple(json.loads(task.gpus or "[]"))
        resources = Resources(int(task.cpu), task.memory_mb, len(gpus))
        allocation = Allocation(task.job_id, task.node or "", resources, gpus, ports, owner)
        self._by_task[task.uid] = allocation
        self._ports.update(ports)
        self._add(allocation, 1)

    def allocate_delegated(self, uid: str, owner: AllocationOwner, resources: Resources) -> None:
        """Count a task that an external scheduler places."""
        if uid not in self._delegated:
            self._delegated[uid] = owner.user, HeldResources(1, *resources)
            self._count(*self._delegated[uid], 1)
            if owner.vc in self._admitted_vcs:
                self._admitted[uid] = owner, resources
                self._add_to_owner(owner, resources, 1)

    def admitted_to(self, vcs: Set[str]) -> dict[str, Resources]:
        """What the admitted tasks of these virtual clusters hold, by uid."""
        return {uid: resources for uid, (owner, resources) in self._admitted.items() if owner.vc in vcs}

    def free(self, uid: str) -> None:
        admitted = self._admitted.pop(uid, None)
        if admitted is not None:
            self._add_to_owner(*admitted, -1)
        delegated = self._delegated.pop(uid, None)
        if delegated is not None:
            self._count(*delegated, -1)
        allocation = self._by_task.pop(uid, None)
        if allocation is not None:
            self._ports.difference_update(allocation.ports)
            self._add(allocation, -1)

    def _add(self, allocation: Allocation, times: int) -> None:
        owner, resources = allocation.owner, allocation.resources
        _add(self.by_node, allocation.node, resources, times)
        self._add_to_owner(owner, resources, times)
        self._count(owner.user, HeldResources(1, *resources), times)

    def _add_to_owner(self, owner: AllocationOwner, resources: Resources, times: int) -> None:
        _add(self.by_user, owner.user, resources, times)
        if not owner.preemptible:
            _add(self.by_vc, owner.vc, resources, times)

    def _count(self, user: str, amounts: HeldResources, times: int) -> None:
        total = self.running.get(user, HeldResources()).plus(amounts, times)
        if total.tasks:
            self.running[user] = total
        else:
            self.running.pop(user, None)

    def ports_taken(self, ports: Iterable[int]) -> bool:
        return not self._ports.isdisjoint(ports)

    def all(self) -> Iterable[Allocation]:
        return self._by_task.values()

    def node_capacity(self, nodes: Sequence[Node]) -> list[NodeCapacity]:
        """What is free on each node."""
        taken: dict[str, set[int]] = {}
        for allocation in self._by_task.values():
            if allocation.gpus:
                taken.setdefault(allocation.node, set()).update(allocation.gpus)
        capacities = []
        for node in nodes:
            total = Resources(node.cpu, node.memory_mb, len(node.gpus))
            free = total.minus(self.by_node.get(node.name, Resources()))
            taken_gpus = taken.get(node.name, set())
            gpus = tuple(gpu for gpu in node.gpus if gpu not in taken_gpus)
            capacities.append(NodeCapacity(node.name, total, free, gpus))
        return capacities


def _add(totals: dict[str, Resources], key: str, resources: Resources, times: int) -> None:
    totals[key] = totals.get(key, Resources()).plus(resources, times)


class EmptyNodes:
    """Capacity of nodes with nothing allocated: the same list as long as the nodes stay the same."""

    def __init__(self, nodes: Callable[[], Sequence[Node]]):
        self._read_nodes = nodes
        self._nodes: Sequence[Node] = ()
        self._capacity: list[NodeCapacity] = []

    def __call__(self) -> list[NodeCapacity]:
        nodes = self._read_nodes()
        if nodes != self._nodes:
            self._nodes, self._capacity = nodes, Allocations().node_capacity(nodes)
        return self._capacity
