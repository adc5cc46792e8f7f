"""Nodes of a Kubernetes cluster as the cluster shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paicluster.engines.interface import Node
from paicluster.engines.kubernetes.api_objects import ApiNode
from paicluster.engines.kubernetes.options import PodSettings
from paicluster.engines.kubernetes.quantities import number


def is_ready(node: ApiNode) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def is_lost(node: ApiNode | None) -> bool:
    """Whether its kubelet does not report any more, or it was deleted."""
    if node is None:
        return True
    return any(one.type == "Ready" and one.status == "Unknown" for one in node.status.conditions)


def has_same_room(old: ApiNode | None, new: ApiNode | None) -> bool:
    """Whether as many pods fit as before, whatever else has changed."""
    if old is None or new is None:
        return False
    before, after = (
        (one.spec, one.status.allocatable, one.metadata.labels, is_ready(one)) for one in (old, new)
    )
    return before == after


def usable_nodes(nodes: Iterable[ApiNode], settings: Iterable[PodSettings]) -> list[Node]:
    """Nodes that pods of any of these settings may use, with what is allocatable."""
    wanted = list(settings)
    found = []
    for node in sorted(nodes, key=lambda one: one.metadata.name):
        chosen = next((one for one in wanted if is_usable(node, one)), None)
        if chosen is not None:
            found.append(_node(node, chosen.gpu_resource))
    return found


def is_usable(node: ApiNode, settings: PodSettings) -> bool:
    labels = node.metadata.labels
    if not is_ready(node) or node.spec.unschedulable:
        return False
    if any(labels.get(name) != value for name, value in settings.node_selector.items()):
        return False
    return all(
        taint.effect == "PreferNoSchedule"
        or any(_tolerates(each, taint.key, taint.value or "", taint.effect) for each in settings.tolerations)
        for taint in node.spec.taints
    )


def _tolerates(toleration: Mapping[str, object], key: str, value: str, effect: str) -> bool:
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", key)
    return toleration.get("key") == key and str(toleration.get("value") or "") == value


def _node(node: ApiNode, gpu_resource: str) -> Node:
    free = node.status.allocatable
    addresses = {one.type: one.address for one in reversed(node.status.addresses)}
    return Node(
        name=node.metadata.name,
        ip=addresses.get("InternalIP") or addresses.get("Hostname") or node.metadata.name,
        cpu=int(number(free.get("cpu"))),
        memory_mb=int(number(free.get("memory")) / (1 << 20)),
        gpus=tuple(range(int(number(free.get(gpu_resource))))),
    )
