"""Free resources of nodes: what is allocatable, without the requests of all pods that are bound to them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from paicluster.engines.interface import FreeNode, FreeNodes
from paicluster.engines.kubernetes.api_objects import ApiContainer, ApiNode, ApiPodSpec
from paicluster.engines.kubernetes.nodes import is_usable
from paicluster.engines.kubernetes.options import PodSettings
from paicluster.engines.kubernetes.quantities import number

_CPU, _MEMORY = "cpu", "memory"
_INTERVAL_S = 1.0
# Of pods that are not finished, and have a node.
BOUND_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class _Requests:
    node: str
    # In thousandths, by the resource's name.
    amounts: Mapping[str, int]


class BoundPods:
    """Requests of pods by node: a sum for each, kept up to date."""

    def __init__(self) -> None:
        self._by_pod: dict[str, _Requests] = {}
        self._by_node: dict[str, Counter[str]] = {}

    def put(self, pod: str, spec: ApiPodSpec | None) -> bool:
        """Set what a pod takes, None for nothing; whether it took something that is free now."""
        old = self._by_pod.pop(pod, None)
        if old is not None:
            taken = self._by_node[old.node]
            taken.subtract(old.amounts)
            if not any(taken.values()):
                del self._by_node[old.node]
        if spec is not None and spec.node_name:
            new = self._by_pod[pod] = _Requests(spec.node_name, requests_of(spec))
            self._by_node.setdefault(new.node, Counter()).update(new.amounts)
        return old is not None and spec is None

    def on(self, node: str) -> Mapping[str, int]:
        return self._by_node.get(node, {})


class RoomNotifier:
    """Tells listeners that more may be free: a moment later, since many pods may end at once."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def notify(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._due)

    def _due(self) -> None:
        self._timer = None
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def requests_of(spec: ApiPodSpec) -> dict[str, int]:
    """What a pod takes of its node, in thousandths: all containers, or the largest one before them."""
    total = Counter[str]()
    for container in spec.containers:
        total.update(_requests(container))
    for container in spec.init_containers:
        for name, amount in _requests(container).items():
            total[name] = max(total[name], amount)
    total.update({name: _thousandths(text) for name, text in spec.overhead.items()})
    return dict(total)


def _requests(container: ApiContainer) -> dict[str, int]:
    # A limit without a request is a request, too.
    texts = {**container.resources.limits, **container.resources.requests}
    return {name: _thousandths(text) for name, text in texts.items()}


def _thousandths(quantity: str) -> int:
    return math.ceil(number(quantity) * 1000)


def free_nodes(
    nodes: Iterable[ApiNode], settings: PodSettings, bound: BoundPods, counted: Set[str]
) -> FreeNodes:
    """Nodes that pods with these settings may use. ``counted``: our attempts that have or had a node."""
    found = []
    for node in nodes:
        if is_usable(node, settings):
            allocatable = {name: _thousandths(text) for name, text in node.status.allocatable.items()}
            taken = bound.on(node.metadata.name)
            free = {name: amount - taken.get(name, 0) for name, amount in allocatable.items()}
            found.append(
                FreeNode(
                    node.metadata.name,
                    *_amounts(allocatable, settings.gpu_resource),
                    *_amounts(free, settings.gpu_resource),
                )
            )
    return FreeNodes(found, counted)


def _amounts(thousandths: Mapping[str, int], gpu_resource: str) -> tuple[int, int, int]:
    """Whole cores, megabytes and GPUs."""
    cpu, memory, gpus = (max(0, thousandths.get(name, 0)) for name in (_CPU, _MEMORY, gpu_resource))
    return cpu // 1000, memory // (1000 << 20), gpus // 1000
