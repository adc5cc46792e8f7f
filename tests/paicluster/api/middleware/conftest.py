"""Clusters with a small team, for the tests of what stands between the network and the routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edge_team import MACHINE, add_people
from team import PEOPLE, TeamCluster

from described import Description

NewTeam = Callable[..., TeamCluster]


@pytest.fixture
def new_team(tmp_path: Path) -> Iterator[NewTeam]:
    """Starts clusters with `admin`, `alice` and `bob`; ``config`` is what their file says."""
    running: list[TeamCluster] = []

    def start(config: str = "", names: tuple[str, ...] = PEOPLE, **more: Any) -> TeamCluster:
        home = tmp_path / f"home-{len(running)}"
        add_people(home, names)
        options = MACHINE
        if config:
            file = tmp_path / f"cluster-{len(running)}.yaml"
            file.write_text(config)
            options = ("--config", str(file), *MACHINE)
        cluster = TeamCluster(home, options, **more)
        running.append(cluster)
        cluster.start()
        cluster.description = Description(cluster.get("/openapi.json", token=None).json())
        cluster.tokens = {who: cluster.log_in(who) for who in names[:3]}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        return cluster

    yield start
    for cluster in running:
        cluster.close()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    """One cluster for the tests of a file, as the settings have it by default."""
    home = tmp_path_factory.mktemp("edge") / "home"
    add_people(home)
    cluster = TeamCluster(home, MACHINE)
    try:
        cluster.start()
        cluster.description = Description(cluster.get("/openapi.json", token=None).json())
        cluster.tokens = {who: cluster.log_in(who) for who in PEOPLE}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()
