"""One running cluster for all tests of the controller; they tell their jobs apart by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.server_fixture import Cluster, new_cluster_fixture  # noqa: F401

PLANTED = "PLANTED_IN_THE_SERVERS_ENVIRONMENT"
# Nobody lives to see the end of it: what is over was not killed, it ended when it was asked to.
GRACE_S = 3600


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("controller") / "home"
    running = Cluster(home, variables={PLANTED: "leaked"})
    try:
        yield running.start("--grace", str(GRACE_S))
    finally:
        running.close()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster of this test alone, for what needs its resources to itself."""
    made: list[Cluster] = []

    def make(*options: str) -> Cluster:
        cluster = Cluster(tmp_path / f"home{len(made)}", ("--embedded", *options))
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.close()


_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A job name nobody has used."""
    return f"{request.node.originalname[5:45]}-{next(_numbers)}"
