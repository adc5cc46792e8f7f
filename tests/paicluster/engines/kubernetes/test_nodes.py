"""Quantities and nodes of Kubernetes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from paicluster.engines.interface import Node
from paicluster.engines.kubernetes.api_objects import ApiNode
from paicluster.engines.kubernetes.nodes import is_lost, usable_nodes
from paicluster.engines.kubernetes.options import PodSettings
from paicluster.engines.kubernetes.quantities import number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("500m", Decimal("0.5")),
        ("16Gi", 16 * 1024**3),
        ("1Ki", 1024),
        ("10M", 10**7),
        ("3k", 3000),
        ("2Ti", 2 * 1024**4),
        ("12e6", 12_000_000),
        ("1.5", Decimal("1.5")),
        ("0", 0),
        (None, 0),
        ("", 0),
        ("lots", 0),
    ],
)
def test_quantities(text: str | None, value: object) -> None:
    assert number(text) == value


def node(name: str = "n1", ready: str = "True", **spec: Any) -> ApiNode:
    labels = spec.pop("labels", {})
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "7900m", "memory": "32Gi", "nvidia.com/gpu": "2"},
                "conditions": [{"type": "Ready", "status": ready}],
                "addresses": [
                    {"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "InternalIP", "address": "fd00::1"},
                ],
            },
        },
        ApiNode,
    )


def names(nodes: list[ApiNode], *settings: PodSettings) -> list[str]:
    return [one.name for one in usable_nodes(nodes, settings or (PodSettings(),))]


def test_node_has_what_is_allocatable() -> None:
    assert usable_nodes([node()], [PodSettings()]) == [Node("n1", "10.0.0.1", 7, 32768, (0, 1))]


def test_nodes_that_no_virtual_cluster_may_use_are_not_shown() -> None:
    tainted = node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule", "value": "yes"}])
    nodes = [node(), node("away", "Unknown"), node("closed", unschedulable=True), tainted]
    assert names(nodes) == ["n1"]
    exists, equal = {"key": "gpu", "operator": "Exists"}, {"key": "gpu", "value": "yes"}
    for toleration in (exists, equal, {"operator": "Exists"}):
        assert names(nodes, PodSettings(tolerations=(toleration,))) == ["n1", "tainted"]
    assert names(nodes, PodSettings(tolerations=({"key": "gpu", "value": "no"},))) == ["n1"]


def test_selector_of_a_virtual_cluster_chooses_nodes() -> None:
    nodes = [node("a", labels={"pool": "x"}), node("b")]
    assert names(nodes, PodSettings(node_selector={"pool": "x"})) == ["a"]
    assert names(nodes, PodSettings(node_selector={"pool": "x"}), PodSettings()) == ["a", "b"]


def test_node_whose_kubelet_is_silent_is_lost() -> None:
    assert is_lost(node(ready="Unknown")) and is_lost(None)
    assert not is_lost(node()) and not is_lost(node(ready="False"))
