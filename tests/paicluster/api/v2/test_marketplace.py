"""Marketplace API: always empty and read-only."""

from __future__ import annotations

import pytest

from support.team_cluster import TeamCluster

BASE = "/marketplace/api"


@pytest.mark.parametrize("kind", ["items", "tags", "categories"])
def test_lists_are_empty(cluster: TeamCluster, kind: str) -> None:
    assert cluster.get(f"{BASE}/{kind}").json() == []
    assert cluster.get(f"{BASE}/{kind}", token=None).status == 401


def test_no_item_is_found(cluster: TeamCluster) -> None:
    for rest in ("", "/tag", "/category"):
        missing = cluster.get(f"{BASE}/items/7{rest}")
        assert (missing.status, missing.json()["code"]) == (404, "NoItemError")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "items"),
        ("POST", "tags"),
        ("POST", "categories"),
        ("POST", "storages/blobs"),
        ("PUT", "items/7"),
        ("DELETE", "items/7"),
        ("PUT", "items/7/tag/1"),
        ("DELETE", "items/7/category/1"),
    ],
)
def test_changes_are_refused(cluster: TeamCluster, method: str, path: str) -> None:
    refused = cluster.ask(method, f"{BASE}/{path}", {})
    assert (refused.status, refused.json()["code"]) == (400, "NotImplementedError")
    assert cluster.ask(method, f"{BASE}/{path}", {}, token=None).status == 401
