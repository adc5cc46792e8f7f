"""Free resources of the nodes of Kubernetes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from paicluster.engines.interface import FreeNode
from paicluster.engines.kubernetes.api_objects import ApiNode, ApiPodSpec
from paicluster.engines.kubernetes.free_resources import BoundPods, RoomNotifier, free_nodes, requests_of
from paicluster.engines.kubernetes.options import PodSettings


def spec(node: str | None, *requests: dict[str, str], **more: Any) -> ApiPodSpec:
    containers = [{"name": "c", "resources": {"requests": each}} for each in requests]
    return msgspec.convert({"nodeName": node, "containers": containers, **more}, ApiPodSpec)


def node(name: str, ready: str = "True", **more: Any) -> ApiNode:
    status = {
        "allocatable": {"cpu": "7900m", "memory": "8Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": more, "status": status}, ApiNode)


def test_requests_of_a_pod() -> None:
    init = [{"name": "i", "resources": {"requests": {"cpu": "2", "memory": "1Mi"}}}]
    limits = {"name": "l", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    one = spec("n", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "0.25"}, initContainers=init)
    assert requests_of(one) == {"cpu": 2000, "memory": (1 << 30) * 1000}
    two = msgspec.convert({"containers": [limits], "overhead": {"cpu": "10m"}}, ApiPodSpec)
    assert requests_of(two) == {"nvidia.com/gpu": 1000, "cpu": 10}


def test_all_pods_are_subtracted_once() -> None:
    bound = BoundPods()
    mine = spec("a", {"cpu": "900m", "memory": "1Gi", "nvidia.com/gpu": "1"})
    assert not bound.put("lab/mine", mine)
    assert not bound.put("lab/mine", mine), "two watches report the same pod"
    bound.put("kube-system/theirs", spec("a", {"cpu": "1"}))
    bound.put("lab/waits", spec(None, {"cpu": "1"}))
    found = free_nodes([node("a"), node("b")], PodSettings(), bound, {"mine"})
    assert found.nodes == [
        FreeNode("a", 7, 8192, 2, free_cpu=6, free_memory_mb=7168, free_gpus=1),
        FreeNode("b", 7, 8192, 2, free_cpu=7, free_memory_mb=8192, free_gpus=2),
    ]
    assert found.counted == {"mine"}
    assert bound.put("lab/mine", None) and bound.put("kube-system/theirs", None)
    assert not bound.put("lab/mine", None) and not bound.on("a")


def test_nodes_that_are_overcommitted_or_unusable() -> None:
    bound = BoundPods()
    bound.put("x/large", spec("a", {"cpu": "20", "memory": "100Gi"}))
    nodes = [node("a"), node("b", ready="Unknown"), node("c", unschedulable=True)]
    (found,) = free_nodes(nodes, PodSettings(), bound, set()).nodes
    assert (found.name, found.free_cpu, found.free_memory_mb, found.free_gpus) == ("a", 0, 0, 2)


async def test_listeners_are_called_once_for_many_changes() -> None:
    notifier, called = RoomNotifier(), asyncio.Event()
    calls = []
    notifier.add(lambda: (calls.append(1), called.set())[1])
    for _ in range(100):
        notifier.notify()
    async with asyncio.timeout(90):
        await called.wait()
    assert len(calls) == 1
    notifier.notify()
    notifier.close()
