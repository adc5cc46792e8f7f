"""Placement: the node and the GPUs of each task, by the free capacity of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """A task and its node; an empty node leaves the placement to the engine's own scheduler."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...]


@dataclass(slots=True)
class NodeCapacity:
    """A node: total resources, free resources, and the indexes of the free GPUs."""

    name: str
    total: Resources
    free: Resources
    gpus: tuple[int, ...] = field(default=())

    def copy(self) -> NodeCapacity:
        return NodeCapacity(self.name, self.total, self.free, self.gpus)

    def empty_copy(self) -> NodeCapacity:
        """The same node with everything free."""
        return NodeCapacity(self.name, self.total, self.total, tuple(range(self.total.gpu)))

    def allocate(self, each: Resources) -> tuple[int, ...]:
        """Allocate the resources of one task; returns its GPUs."""
        gpus, self.gpus = self.gpus[: each.gpu], self.gpus[each.gpu :]
        self.free = self.free.minus(each)
        return gpus

    def release(self, each: Resources, gpus: Sequence[int]) -> None:
        self.free = self.free.plus(each)
        self.gpus = tuple(sorted({*self.gpus, *gpus}))

    def undo_release(self, each: Resources, gpus: Sequence[int]) -> None:
        """Allocate the same GPUs again."""
        self.free = self.free.minus(each)
        self.gpus = tuple(gpu for gpu in self.gpus if gpu not in gpus)


def place_tasks(
    nodes: Sequence[NodeCapacity], request: ResourceRequest, indexes: Sequence[Sequence[int]] | None = None
) -> list[TaskPlacement]:
    """Place as many tasks as fit and allocate them on ``nodes``. ``indexes``: which tasks of each role.

    For a gang the caller must check that every task was placed, and pass copies of the nodes.
    """
    placements: list[TaskPlacement] = []
    for number, role in enumerate(request.roles):
        tasks = range(role.instances) if indexes is None else indexes[number]
        for index in tasks:
            node = best_fit(nodes, role)
            if node is None:
                if request.gang:
                    return placements
                break
            placements.append(TaskPlacement(role.role, index, node.name, node.allocate(role.each)))
    return placements


def best_fit(nodes: Sequence[NodeCapacity], role: RoleRequest) -> NodeCapacity | None:
    """Best fit: the fullest node that still has enough, so that large tasks keep finding empty ones."""
    fitting = [node for node in nodes if role.each.fits(node.free) and len(node.gpus) >= role.each.gpu]
    if not fitting:
        return None
    return min(fitting, key=lambda node: (node.free.gpu, node.free.cpu, node.free.memory_mb))
