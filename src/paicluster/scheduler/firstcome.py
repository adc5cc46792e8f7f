"""First come, first served: a gang starts when all of it fits, and nobody passes whoever waits longest.

A job that can never fit stands aside with its reason instead of blocking those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node: what it has in all, and what is free now."""

    name: str
    cpu: int
    memory_mb: int
    gpu: int
    free_cpu: int
    free_memory_mb: int
    free_gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoleNeed:
    """So many tasks of a role, each with these resources."""

    role: str
    instances: int
    cpu: int
    memory_mb: int
    gpu: int


@dataclass(frozen=True, slots=True)
class JobNeed:
    job_id: int
    roles: tuple[RoleNeed, ...]


@dataclass(frozen=True, slots=True)
class TaskSeat:
    role: str
    index: int
    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Every task of this job fits now."""

    job_id: int
    seats: tuple[TaskSeat, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why this job does not start. ``never``: not even on the empty cluster."""

    job_id: int
    reason: str
    never: bool


class _Room:
    __slots__ = ("cpu", "gpus", "memory_mb", "node")

    def __init__(self, node: NodeRoom, *, empty: bool = False):
        self.node = node
        self.cpu = node.cpu if empty else node.free_cpu
        self.memory_mb = node.memory_mb if empty else node.free_memory_mb
        self.gpus = tuple(range(node.gpu)) if empty else node.free_gpus

    def short_of(self, need: RoleNeed) -> list[str]:
        short = []
        if self.cpu < need.cpu:
            short.append("cpu")
        if self.memory_mb < need.memory_mb:
            short.append("memory")
        if len(self.gpus) < need.gpu:
            short.append("nvidia.com/gpu")
        return short

    def copy(self) -> _Room:
        other = _Room(self.node)
        other.cpu, other.memory_mb, other.gpus = self.cpu, self.memory_mb, self.gpus
        return other


def plan(nodes: Sequence[NodeRoom], waiting: Iterable[JobNeed]) -> list[Start | Wait]:
    """Decisions in the order of ``waiting``, up to the first job that must wait for room.

    Those behind it have no decision: they wait for it.
    """
    rooms = [_Room(node) for node in nodes]
    empty = [_Room(node, empty=True) for node in nodes]
    decisions: list[Start | Wait] = []
    for need in waiting:
        seats, reason, rooms = _place(rooms, need)
        if seats is not None:
            decisions.append(Start(need.job_id, seats))
            continue
        on_empty, never_reason, _ = _place(empty, need)
        never = on_empty is None
        decisions.append(Wait(need.job_id, never_reason if never else reason, never))
        if not never:
            break
    return decisions


def _place(rooms: list[_Room], need: JobNeed) -> tuple[tuple[TaskSeat, ...] | None, str, list[_Room]]:
    """Seats for the whole gang with the rooms that are left, or the reason with the rooms as they were."""
    left = [room.copy() for room in rooms]
    seats: list[TaskSeat] = []
    for role in need.roles:
        start = 0  # tasks of a role are alike: a node too full for one is too full for the next
        for index in range(role.instances):
            for number in range(start, len(left)):
                room = left[number]
                if not room.short_of(role):
                    seats.append(TaskSeat(role.role, index, room.node.name, room.gpus[: role.gpu]))
                    room.cpu -= role.cpu
                    room.memory_mb -= role.memory_mb
                    room.gpus = room.gpus[role.gpu :]
                    start = number
                    break
            else:
                return None, _reason(left, role), rooms
    return tuple(seats), "", left


def _reason(rooms: Sequence[_Room], need: RoleNeed) -> str:
    """In the original's words: ``0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.``"""
    counts: dict[str, int] = {}
    for room in rooms:
        for resource in room.short_of(need):
            counts[resource] = counts.get(resource, 0) + 1
    parts = ", ".join(f"{count} Insufficient {resource}" for resource, count in counts.items())
    return f"0/{len(rooms)} nodes are available: {parts}." if rooms else "0/0 nodes are available."
