"""Nodes with what is free on them, and fitting tasks into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

_NAMES = ("cpu", "memory", "nvidia.com/gpu")


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """A task and its place; without a node it is for the engine to find one."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...]


@dataclass(slots=True)
class NodeCapacity:
    """A node: what it has in all, what is free, and which GPUs those are."""

    name: str
    total: Resources
    free: Resources
    gpus: tuple[int, ...] = field(default=())

    def copy(self) -> NodeCapacity:
        return NodeCapacity(self.name, self.total, self.free, self.gpus)

    def emptied(self) -> NodeCapacity:
        return NodeCapacity(self.name, self.total, self.total, tuple(range(self.total.gpu)))

    def take(self, each: Resources) -> tuple[int, ...]:
        gpus, self.gpus = self.gpus[: each.gpu], self.gpus[each.gpu :]
        self.free = self.free.minus(each)
        return gpus

    def give_back(self, each: Resources, gpus: Sequence[int]) -> None:
        self.free = self.free.plus(each)
        self.gpus = tuple(sorted({*self.gpus, *gpus}))

    def take_back(self, each: Resources, gpus: Sequence[int]) -> None:
        """What was given back is not, after all."""
        self.free = self.free.minus(each)
        self.gpus = tuple(gpu for gpu in self.gpus if gpu not in gpus)


def place_tasks(
    rooms: Sequence[NodeCapacity], need: ResourceRequest, indexes: Sequence[Sequence[int]] | None = None
) -> list[TaskPlacement]:
    """Seats for the tasks, taken out of ``rooms``; as many as fit. ``indexes``: which tasks of each role.

    A gang's caller must check that all got one, and work on a copy.
    """
    seats: list[TaskPlacement] = []
    for number, role in enumerate(need.roles):
        wanted = range(role.instances) if indexes is None else indexes[number]
        for index in wanted:
            room = _best_fit(rooms, role)
            if room is None:
                if need.gang:
                    return seats
                break
            seats.append(TaskPlacement(role.role, index, room.name, room.take(role.each)))
    return seats


def _best_fit(rooms: Sequence[NodeCapacity], role: RoleRequest) -> NodeCapacity | None:
    """The fullest node that still fits, so that large tasks keep finding empty ones."""
    fitting = [room for room in rooms if role.each.fits(room.free) and len(room.gpus) >= role.each.gpu]
    if not fitting:
        return None
    return min(fitting, key=lambda room: (room.free.gpu, room.free.cpu, room.free.memory_mb))


def explain_shortage(rooms: Sequence[NodeCapacity], need: ResourceRequest) -> str:
    """In the original's words: ``0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.``"""
    left = [room.copy() for room in rooms]
    for role in need.roles:
        for _ in range(role.instances):
            room = _best_fit(left, role)
            if room is None:
                return _shortages(left, role.each)
            room.take(role.each)
    return ""


def _shortages(rooms: Sequence[NodeCapacity], each: Resources) -> str:
    counts: dict[str, int] = {}
    for room in rooms:
        for name, wanted, free in zip(_NAMES, each, room.free, strict=True):
            if wanted > free:
                counts[name] = counts.get(name, 0) + 1
    parts = ", ".join(f"{count} Insufficient {name}" for name, count in counts.items())
    return (
        f"0/{len(rooms)} nodes are available: {parts}." if parts else f"0/{len(rooms)} nodes are available."
    )
