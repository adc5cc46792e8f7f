"""Somebody works with Slurm's own commands, on its nodes and on our jobs: what people then see here."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from real_slurm import CPUS, RealSlurm, eventually
from served import Cluster
from test_jobs_over_slurm import make

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def cluster(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = make(tmp_path_factory.mktemp("over"), slurm)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(autouse=True)
def mended(slurm: RealSlurm) -> Iterator[None]:
    yield
    slurm.ask("scancel", "-u", "root")
    slurm.wait_idle()


def cores(cluster: Cluster) -> int:
    found: int = cluster.get("/api/v2/virtual-clusters/slurm").json()["resourcesTotal"]["vCores"]
    return found


def test_a_drained_node_is_not_offered(cluster: Cluster, slurm: RealSlurm) -> None:
    eventually(lambda: cores(cluster) == 3 * CPUS, "all nodes", 20)
    slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    eventually(lambda: cores(cluster) == 2 * CPUS, "one node less", 10)
    assert "n2" not in cluster.get("/api/v2/virtual-clusters?nodes").json()
    slurm.ask("scontrol", "update", "nodename=n2", "state=resume")
    eventually(lambda: cores(cluster) == 3 * CPUS, "the node again", 10)


def test_whoever_asks_for_the_nodes_is_answered_while_slurm_is_down(
    cluster: Cluster, slurm: RealSlurm
) -> None:
    eventually(lambda: cores(cluster) == 3 * CPUS, "all nodes", 20)
    slurm.kill_controller(signal.SIGTERM)
    try:
        assert {cores(cluster) for _ in range(20)} == {3 * CPUS}
    finally:
        slurm.start_controller()
