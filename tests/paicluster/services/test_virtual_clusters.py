"""Shares of virtual clusters: the settings', what was changed since, and those of somebody else's cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpaisdk.errors import Forbidden
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.store import Store, groups

WHOLE = Resources(16, 1600, 4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "cluster.db")
    yield opened
    opened.close()


def test_default_has_the_rest_and_listeners_hear_of_changes(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: WHOLE, {"lab": Resources(4, 400, 1)})
    held = clusters.shares
    assert held == {"default": Resources(12, 1200, 3), "lab": Resources(4, 400, 1)}
    heard: list[dict[str, Resources]] = []
    clusters.on_change(lambda: heard.append(dict(clusters.shares)))
    assert asyncio.run(clusters.put("new", 50, 100)) is True
    assert clusters.shares is held and held["new"] == Resources(8, 800, 2)
    assert held["default"] == Resources(4, 400, 1) and heard == [held]
    assert asyncio.run(clusters.put("lab", 0, 0)) is False, "also what the settings gave can be changed"
    assert (clusters.capacity("lab"), clusters.capacity("default")) == (0, 50)


def test_no_more_is_given_than_there_is(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: WHOLE, {"lab": Resources(4, 400, 1)})
    for share in (76, 100):
        with pytest.raises(Forbidden) as refused:
            asyncio.run(clusters.put("new", share, share))
        assert refused.value.code == "NoEnoughQuotaError"
    assert set(clusters.shares) == {"default", "lab"}
    assert store.read_sync(lambda conn: groups.get_group(conn, "new")) is None


def test_a_cluster_that_shrank_leaves_default_nothing_rather_than_not_starting(store: Store) -> None:
    asyncio.run(VirtualClusters(store, lambda: WHOLE, {}).put("most", 90, 90))
    smaller = VirtualClusters(store, lambda: Resources(8, 800, 0), {})
    assert smaller.shares["default"] == Resources(0, 0, 0) and smaller.shares["most"].cpu == 14


def test_what_is_scheduled_elsewhere_has_all_that_is_there_and_is_not_ours_to_change(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: WHOLE, {})
    clusters.set_external({"slurm": Resources(1000, 10_000, 80)})
    assert clusters.shares["slurm"] == Resources(1000, 10_000, 80)
    assert (clusters.capacity("slurm"), clusters.capacity("default")) == (100, 100)
    assert store.read_sync(lambda conn: groups.get_group(conn, "slurm")) is not None
    for change in (clusters.put("slurm", 1, 1), clusters.remove("slurm")):
        with pytest.raises(Forbidden) as refused:
            asyncio.run(change)
        assert refused.value.code == "ReadOnlyVcError"
    asyncio.run(clusters.set_status("slurm", "stopped"))
    assert clusters.stopped == {"slurm"}
    again = VirtualClusters(store, lambda: WHOLE, {})
    assert again.stopped == set()
    again.set_external({"slurm": Resources(1000, 10_000, 80)})
    assert again.stopped == {"slurm"}
