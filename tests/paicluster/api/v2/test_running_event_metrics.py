"""Metrics of event files of a running task: lists and comparisons have them when a client has looked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.event_job import EventJob
from support.server_fixture import Cluster, eventually, job


def _comparison(cluster: Cluster, looked_at: EventJob) -> bool:
    return looked_at.has_row()


def _column(cluster: Cluster, looked_at: EventJob) -> bool:
    query = f"keyword={looked_at.name}&limit=50&metric={looked_at.metric}"
    found = {one["name"]: one["metrics"] for one in cluster.get(f"/api/v2/jobs?{query}").json()}
    return bool(found[looked_at.name] == {looked_at.metric: {"last": 50, "min": 1, "max": 50}})


def _names_of_columns(cluster: Cluster, looked_at: EventJob) -> bool:
    names = cluster.get(f"/api/v2/job-columns?keyword={looked_at.name}").json()
    return looked_at.metric in names["metrics"]


def _order(cluster: Cluster, looked_at: EventJob) -> bool:
    """A job that is newer has no value: it is the last one then."""
    query = f"keyword={looked_at.name}&order=metric.{looked_at.metric}.last,DESC"
    return bool(cluster.get(f"/api/v2/jobs?{query}").json()[0]["name"] == looked_at.name)


@pytest.mark.parametrize("look", [_comparison, _column, _names_of_columns, _order])
def test_a_client_that_looks_again_has_the_values(
    cluster: Cluster, tmp_path: Path, look: Callable[[Cluster, EventJob], bool]
) -> None:
    name = f"looked{look.__name__.replace('_', '-')}"
    looked_at = EventJob(cluster, name, tmp_path / "parts", tag=look.__name__)
    if look is _order:
        cluster.run(job(f"{name}-other", "true"))
    looked_at.write()
    eventually(lambda: look(cluster, looked_at), "the values of the running task")
    assert cluster.detail(name)["jobStatus"]["state"] == "RUNNING"
    looked_at.write()
    looked_at.end()
    eventually(looked_at.has_row, "the values at the end")
