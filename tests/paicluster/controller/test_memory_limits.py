"""Enforced memory limits on a running cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.engines.process import cgroup_limits, cgroups
from support.server_fixture import Cluster, job

GREEDY = f"{sys.executable} -I -S -c 'b = bytearray(300 << 20); b[::4096] = bytes(len(b[::4096]))'"


def _cannot_limit() -> bool:
    name = f"pai-test-{os.getpid()}"
    hold = cgroups.choose(name, limiting=True)
    found = cgroup_limits.choose(name, hold)
    for root in {*found.roots, *filter(None, (hold.root,))}:
        root.rmdir()
    return bool(found.missing) and os.environ.get("CI") != "true"


@pytest.mark.skipif(_cannot_limit(), reason="this account may not limit memory here")
def test_job_over_its_memory_limit_fails_with_a_reason(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("--limits", "enforce")
    status = cluster.run(job("greedy", GREEDY, memory_mb=64))
    assert (status["state"], status["appExitCode"]) == ("FAILED", -1200)
    assert status["appExitSpec"]["phrase"] == "UserContainerDockerOOMKilled"
    assert "more memory" in status["appExitMessages"]["runtime"]["caughtException"]
    assert "--mem" in status["appExitSpec"]["solution"][0]
    assert status["retries"] == 0
    assert [event["reason"] for event in cluster.events("greedy")] == []
    assert cluster.run(job("modest", GREEDY, memory_mb=1000))["state"] == "SUCCEEDED"


def test_embedded_cluster_enforces_no_limits_by_default(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.run(job("over-and-well", GREEDY, memory_mb=64))["state"] == "SUCCEEDED"
