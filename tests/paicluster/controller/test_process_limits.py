"""A fork bomb ends as the failure of its own job, and nothing else notices it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.engines.process import cgroup_limits, cgroups
from support.server_fixture import Cluster, job

LIMIT = 64
# Bounded, in case nothing else bounds it: a few hundred processes that end by themselves.
BOMB = "for i in $(seq 300); do sleep 60 & done; echo all started"
PYTHON_BOMB = """python3 -c '
import os, time
for _ in range(300):
    if not os.fork():
        time.sleep(60)
        os._exit(0)
print("all started")
'"""


def _cannot_limit() -> bool:
    name = f"pai-test-{os.getpid()}"
    control = cgroups.choose(name, limiting=True)
    found = cgroup_limits.choose(name, control)
    for root in {*found.roots, *filter(None, (control.root,))}:
        root.rmdir()
    return found.pids is None and os.environ.get("CI") != "true"


@pytest.fixture
def limited(own_cluster: Callable[..., Cluster], tmp_path: Path) -> Cluster:
    settings = tmp_path / "cluster.yaml"
    settings.write_text(f"engine:\n  type: process\n  processes: {LIMIT}\n")
    return own_cluster("--limits", "enforce", "--config", str(settings))


@pytest.mark.skipif(_cannot_limit(), reason="this account may not limit processes here")
@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(PYTHON_BOMB, id="python"),
        # A shell tries for a quarter of a minute.
        pytest.param(BOMB, id="shell", marks=pytest.mark.slow),
    ],
)
def test_fork_bomb_is_the_failure_of_its_job_alone(limited: Cluster, tmp_path: Path, bomb: str) -> None:
    go = tmp_path / "go"
    limited.accept(job("beside", f"until [ -e {go} ]; do sleep 0.05; done"))
    limited.wait_state("beside", "RUNNING")
    status = limited.run(job("bomb", bomb, memory_mb=512))
    assert status["state"] == "FAILED", status
    runtime = status["appExitMessages"]["runtime"]
    assert "as many as it may have" in runtime["caughtException"], runtime
    assert "`processes`" in runtime["solution"], runtime
    assert b"all started" not in limited.log_of("bomb")
    go.touch()
    assert limited.wait_over("beside")["state"] == "SUCCEEDED"


@pytest.mark.skipif(_cannot_limit(), reason="this account may not limit processes here")
def test_job_within_the_limit_succeeds(limited: Cluster) -> None:
    status = limited.run(job("modest", "for i in $(seq 20); do sleep 0.1 & done; wait", memory_mb=512))
    assert status["state"] == "SUCCEEDED", status
