"""What is taken on each node by tasks that are not known to be gone, and for whom."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paicluster.engines.interface import Node
from paicluster.scheduler.node_capacity import NodeCapacity
from paicluster.scheduler.resource_requests import Resources
from paicluster.store.rows import TaskRow


@dataclass(frozen=True, slots=True)
class AllocationOwner:
    """On whose account a task runs. ``guest``: opportunistic, outside of any share."""

    vc: str
    user: str
    preemptible: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    job_id: int
    node: str
    amount: Resources
    gpus: tuple[int, ...]
    ports: tuple[int, ...]
    holder: AllocationOwner


class Allocations:
    """Every entry changes every sum, so that the sums need never be counted anew."""

    def __init__(self) -> None:
        self._held: dict[str, Allocation] = {}
        self._ports: set[int] = set()
        self.by_node: dict[str, Resources] = {}
        self.by_vc: dict[str, Resources] = {}
        self.by_user: dict[str, Resources] = {}

    def clear(self) -> None:
        for kept in (self._held, self.by_node, self.by_vc, self.by_user):
            kept.clear()
        self._ports.clear()

    def take(self, task: TaskRow, holder: AllocationOwner) -> None:
        if task.uid in self._held:
            return
        ports = tuple(port for numbers in json.loads(task.ports or "{}").values() for port in numbers)
        gpus = tuple(json.loads(task.gpus or "[]"))
        amount = Resources(int(task.cpu), task.memory_mb, len(gpus))
        held = Allocation(task.job_id, task.node or "", amount, gpus, ports, holder)
        self._held[task.uid] = held
        self._ports.update(ports)
        self._add(held, 1)

    def free(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            self._ports.difference_update(held.ports)
            self._add(held, -1)

    def _add(self, held: Allocation, times: int) -> None:
        sums = [(self.by_node, held.node), (self.by_user, held.holder.user)]
        if not held.holder.preemptible:
            sums.append((self.by_vc, held.holder.vc))
        for kept, key in sums:
            kept[key] = kept.get(key, Resources()).plus(held.amount, times)

    def ports_taken(self, ports: Iterable[int]) -> bool:
        return not self._ports.isdisjoint(ports)

    def held(self) -> Iterable[Allocation]:
        return self._held.values()

    def node_capacity(self, nodes: Sequence[Node]) -> list[NodeCapacity]:
        taken: dict[str, set[int]] = {}
        for held in self._held.values():
            if held.gpus:
                taken.setdefault(held.node, set()).update(held.gpus)
        rooms = []
        for node in nodes:
            total = Resources(node.cpu, node.memory_mb, len(node.gpus))
            free = total.minus(self.by_node.get(node.name, Resources()))
            gone = taken.get(node.name, set())
            rooms.append(
                NodeCapacity(node.name, total, free, tuple(gpu for gpu in node.gpus if gpu not in gone))
            )
        return rooms
