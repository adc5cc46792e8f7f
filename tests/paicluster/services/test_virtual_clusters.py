"""Quotas of virtual clusters: configured, changed at run time, and of external schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.scheduler.resource_requests import Resources
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.store import Store, groups
from paiprotocol.errors import Forbidden
from support.prepared_database import prepare_database

CLUSTER = Resources(16, 1600, 4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db")
    yield opened
    opened.close()


def test_default_has_the_remainder_and_listeners_are_notified(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: CLUSTER, {"lab": Resources(4, 400, 1)})
    quotas = clusters.quotas
    assert quotas == {"default": Resources(12, 1200, 3), "lab": Resources(4, 400, 1)}
    notified: list[dict[str, Resources]] = []
    clusters.on_change(lambda: notified.append(dict(clusters.quotas)))
    assert asyncio.run(clusters.put("new", 50, 100)) is True
    assert clusters.quotas is quotas and quotas["new"] == Resources(8, 800, 2)
    assert quotas["default"] == Resources(4, 400, 1) and notified == [quotas]
    assert asyncio.run(clusters.put("lab", 0, 0)) is False, "configured quotas can be changed too"
    assert (clusters.capacity("lab"), clusters.capacity("default")) == (0, 50)


def test_quotas_cannot_exceed_the_cluster(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: CLUSTER, {"lab": Resources(4, 400, 1)})
    for percent in (76, 100):
        with pytest.raises(Forbidden) as refused:
            asyncio.run(clusters.put("new", percent, percent))
        assert refused.value.code == "NoEnoughQuotaError"
    assert set(clusters.quotas) == {"default", "lab"}
    assert store.read_sync(lambda conn: groups.get_group(conn, "new")) is None


def test_shrunk_cluster_starts_with_an_empty_default(store: Store) -> None:
    asyncio.run(VirtualClusters(store, lambda: CLUSTER, {}).put("most", 90, 90))
    smaller = VirtualClusters(store, lambda: Resources(8, 800, 0), {})
    assert smaller.quotas["default"] == Resources(0, 0, 0) and smaller.quotas["most"].cpu == 14


def test_externally_scheduled_vc_has_full_capacity_and_is_read_only(store: Store) -> None:
    clusters = VirtualClusters(store, lambda: CLUSTER, {})
    clusters.set_external({"slurm": Resources(1000, 10_000, 80)})
    assert clusters.quotas["slurm"] == Resources(1000, 10_000, 80)
    assert (clusters.capacity("slurm"), clusters.capacity("default")) == (100, 100)
    assert store.read_sync(lambda conn: groups.get_group(conn, "slurm")) is not None
    for change in (clusters.put("slurm", 1, 1), clusters.remove("slurm")):
        with pytest.raises(Forbidden) as refused:
            asyncio.run(change)
        assert refused.value.code == "ReadOnlyVcError"
    asyncio.run(clusters.set_status("slurm", "stopped"))
    assert clusters.stopped == {"slurm"}
    again = VirtualClusters(store, lambda: CLUSTER, {})
    assert again.stopped == set()
    again.set_external({"slurm": Resources(1000, 10_000, 80)})
    assert again.stopped == {"slurm"}
