"""A cluster with three users, a job of alice in it, and OpenSSH's programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server_fixture import job
from support.ssh_client import SshClient, install_openssh
from support.team_cluster import TeamCluster, api_cluster, module_team, new_team_fixture  # noqa: F401

_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def openssh() -> None:
    install_openssh()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An unused job name."""
    return f"{request.node.originalname[5:45]}-{next(_numbers)}"


@pytest.fixture(scope="module", name="client")
def client_of_a_job(
    request: pytest.FixtureRequest, cluster: TeamCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshClient]:
    """A client of a job that runs as long as the tests of the file, whose name it has: `host_endpoint`."""
    name = request.module.__name__.rpartition(".")[2].replace("test_", "host_")
    cluster.accept(job(name, "sleep 600"))
    yield SshClient.of_job(cluster, f"alice~{name}", tmp_path_factory.mktemp("client"))
    cluster.stop(name)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "client"
