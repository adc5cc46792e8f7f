"""One running cluster for all controller tests; each test uses its own job names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.prepared_database import prepare_database
from support.server_fixture import Cluster, new_cluster_fixture  # noqa: F401

PLANTED = "PLANTED_IN_THE_SERVERS_ENVIRONMENT"
# Longer than any test: tasks that ended were not killed, they stopped when asked to.
GRACE_S = 3600


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("controller") / "home"
    prepare_database(home)
    running = Cluster(home, variables={PLANTED: "leaked"})
    try:
        yield running.start("--grace", str(GRACE_S))
    finally:
        running.close()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster for this test alone, for tests that need all of its resources."""
    clusters: list[Cluster] = []

    def make(*options: str) -> Cluster:
        cluster = Cluster(tmp_path / f"home{len(clusters)}", ("--embedded", *options))
        clusters.append(cluster)
        prepare_database(cluster.home)
        return cluster.start()

    yield make
    for cluster in clusters:
        cluster.close()


_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An unused job name."""
    return f"{request.node.originalname[5:45]}-{next(_numbers)}"
