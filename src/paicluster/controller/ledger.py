"""What is taken on each node by tasks that are not known to be gone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from paicluster.engines.interface import Node
from paicluster.scheduler.firstcome import NodeRoom
from paicluster.store.rows import TaskRow


class Ledger:
    def __init__(self) -> None:
        self._held: dict[str, TaskRow] = {}
        self._ports: dict[int, str] = {}

    def clear(self) -> None:
        self._held.clear()
        self._ports.clear()

    def take(self, task: TaskRow) -> None:
        self._held[task.uid] = task
        for numbers in json.loads(task.ports or "{}").values():
            for port in numbers:
                self._ports[port] = task.uid

    def free(self, uid: str) -> None:
        task = self._held.pop(uid, None)
        if task is not None:
            for numbers in json.loads(task.ports or "{}").values():
                for port in numbers:
                    if self._ports.get(port) == uid:
                        del self._ports[port]

    def ports_taken(self, ports: Iterable[int]) -> bool:
        return any(port in self._ports for port in ports)

    def rooms(self, nodes: Sequence[Node]) -> list[NodeRoom]:
        used: dict[str, tuple[float, int, set[int]]] = {node.name: (0, 0, set()) for node in nodes}
        for task in self._held.values():
            if task.node in used:
                cpu, memory, gpus = used[task.node]
                gpus.update(json.loads(task.gpus or "[]"))
                used[task.node] = (cpu + task.cpu, memory + task.memory_mb, gpus)
        rooms = []
        for node in nodes:
            cpu, memory, gpus = used[node.name]
            rooms.append(
                NodeRoom(
                    node.name,
                    node.cpu,
                    node.memory_mb,
                    len(node.gpus),
                    int(node.cpu - cpu),
                    node.memory_mb - memory,
                    tuple(gpu for gpu in node.gpus if gpu not in gpus),
                )
            )
        return rooms
