"""Nodes that an external scheduler fills when we say so, as the planner compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice

from paicluster.engines.interface import FreeNodes
from paicluster.scheduler.placement import NodeCapacity, best_fit
from paicluster.scheduler.resource_requests import Resources, RoleRequest


def free_capacity(free: FreeNodes, admitted: Mapping[str, Resources]) -> list[NodeCapacity]:
    """What is free once all admitted tasks have a node: those not counted yet get one by best fit."""
    nodes = [
        NodeCapacity(
            node.name,
            Resources(node.cpu, node.memory_mb, node.gpus),
            Resources(node.free_cpu, node.free_memory_mb, node.free_gpus),
            tuple(range(node.free_gpus)),
        )
        for node in free.nodes
    ]
    for uid in sorted(admitted.keys() - free.counted, key=lambda uid: admitted[uid], reverse=True):
        # Where none fits, others have taken the room: the task waits there, and holds nothing.
        node = best_fit(nodes, RoleRequest("", 1, admitted[uid]))
        if node is not None:
            node.allocate(admitted[uid])
    return nodes


def held_on(
    nodes: Set[str], tasks: Sequence[tuple[str, Resources]], numbers: Iterator[int]
) -> tuple[tuple[str, Resources, tuple[int, ...]], ...]:
    """What tasks hold on these nodes. ``numbers``: of GPUs, no two equal; only their count matters."""
    return tuple((node, each, tuple(islice(numbers, each.gpu))) for node, each in tasks if node in nodes)
