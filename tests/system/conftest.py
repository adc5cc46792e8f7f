"""Clusters for the tests of whole servers; see `served`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import Cluster


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, each in a home of its own, not yet started; ends all of them."""
    made: list[Cluster] = []

    def make(name: str = "home", **settings: object) -> Cluster:
        cluster = Cluster(tmp_path / name, **settings)  # type: ignore[arg-type]
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """A running cluster of this test alone."""
    return new_cluster().start()
