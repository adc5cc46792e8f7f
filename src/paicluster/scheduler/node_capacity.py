"""Capacity of nodes, and placement of tasks on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

_RESOURCE_NAMES = ("cpu", "memory", "nvidia.com/gpu")


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

    def take(self, each: Resources) -> tuple[int, ...]:
        """Allocate for one task; the GPUs it gets."""
        gpus, self.gpus = self.gpus[: each.gpu], self.gpus[each.gpu :]
        self.free = self.free.minus(each)
        return gpus

    def give_back(self, each: Resources, gpus: Sequence[int]) -> None:
        self.free = self.free.plus(each)
        self.gpus = tuple(sorted({*self.gpus, *gpus}))

    def take_back(self, each: Resources, gpus: Sequence[int]) -> None:
        """Undo `give_back`."""
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
            node = _best_fit(nodes, role)
            if node is None:
                if request.gang:
                    return placements
                break
            placements.append(TaskPlacement(role.role, index, node.name, node.take(role.each)))
    return placements


def _best_fit(nodes: Sequence[NodeCapacity], role: RoleRequest) -> NodeCapacity | None:
    """Best fit: the fullest node that still has enough, so that large tasks keep finding empty ones."""
    fitting = [node for node in nodes if role.each.fits(node.free) and len(node.gpus) >= role.each.gpu]
    if not fitting:
        return None
    return min(fitting, key=lambda node: (node.free.gpu, node.free.cpu, node.free.memory_mb))


def explain_shortage(nodes: Sequence[NodeCapacity], request: ResourceRequest) -> str:
    """As OpenPAI words it: ``0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.``"""
    left = [node.copy() for node in nodes]
    for role in request.roles:
        for _ in range(role.instances):
            node = _best_fit(left, role)
            if node is None:
                return _shortages(left, role.each)
            node.take(role.each)
    return ""


def _shortages(nodes: Sequence[NodeCapacity], each: Resources) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        for name, requested, free in zip(_RESOURCE_NAMES, each, node.free, strict=True):
            if requested > free:
                counts[name] = counts.get(name, 0) + 1
    parts = ", ".join(f"{count} Insufficient {name}" for name, count in counts.items())
    return (
        f"0/{len(nodes)} nodes are available: {parts}." if parts else f"0/{len(nodes)} nodes are available."
    )
