"""Manual use of Slurm's own commands on nodes and jobs, as users then see it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import Phase
from paicluster.engines.slurm.engine import SlurmEngine
from support.engine_rig import Driven, appears, task
from support.server_fixture import Cluster, job
from support.slurm_cluster import CPUS, RealSlurm, eventually
from support.slurm_jobs import make, over_slurm, says
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def cluster(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A grace period longer than the test: what stops was signalled, not killed."""
    running = make(tmp_path_factory.mktemp("over"), slurm)
    try:
        yield running.start("--grace", "3600")
    finally:
        running.close()


@pytest.fixture(autouse=True)
def restored(slurm: RealSlurm) -> Iterator[None]:
    yield
    slurm.ask("scancel", "-u", "root")
    slurm.wait_idle()


def cores(cluster: Cluster) -> int:
    found: int = cluster.get("/api/v2/virtual-clusters/slurm").json()["resourcesTotal"]["vCores"]
    return found


def test_drained_node_is_not_listed(cluster: Cluster, slurm: RealSlurm) -> None:
    eventually(lambda: cores(cluster) == 3 * CPUS, "all nodes")
    node = slurm.nodes[1]
    slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    eventually(lambda: cores(cluster) == 2 * CPUS, "one node less")
    assert node not in cluster.get("/api/v2/virtual-clusters?nodes").json()
    slurm.ask("scontrol", "update", f"nodename={node}", "state=resume")
    eventually(lambda: cores(cluster) == 3 * CPUS, "the node again")


def test_nodes_are_served_from_cache_while_slurm_is_down(cluster: Cluster, slurm: RealSlurm) -> None:
    eventually(lambda: cores(cluster) == 3 * CPUS, "all nodes")
    slurm.kill_controller(signal.SIGTERM)
    try:
        assert {cores(cluster) for _ in range(20)} == {3 * CPUS}
    finally:
        slurm.start_controller()


def scontrol(slurm: RealSlurm, *words: str) -> None:
    subprocess.run(["scontrol", *words], env=slurm.environment, check=True, timeout=90)


def test_suspended_job_is_reported_and_can_be_stopped(cluster: Cluster, slurm: RealSlurm) -> None:
    name = cluster.accept(over_slurm("suspended", "echo up; exec sleep 600"))
    cluster.wait_state(name, "RUNNING")
    (number,) = slurm.jobs()
    scontrol(slurm, "suspend", number)
    says(cluster, name, "SlurmSuspended: The job is suspended in Slurm")
    scontrol(slurm, "resume", number)
    says(cluster, name, "SlurmResumed")
    scontrol(slurm, "suspend", number)
    eventually(lambda: cluster.events(name)[0]["reason"] == "SlurmSuspended", "that it is said again")
    cluster.stop(name)
    assert cluster.wait_over(name)["state"] == "STOPPED"
    eventually(lambda: not slurm.jobs(), "its end in Slurm")


def test_requeued_job_is_retried_once(cluster: Cluster, slurm: RealSlurm) -> None:
    name = cluster.accept(over_slurm("requeued", "echo up; exec sleep 600"))
    cluster.wait_state(name, "RUNNING")
    (number,) = slurm.jobs()
    # The engine submits with --no-requeue, but an administrator can change that.
    scontrol(slurm, "update", f"jobid={number}", "requeue=1")
    scontrol(slurm, "requeue", number)
    eventually(lambda: cluster.status(name)["retries"] == 1, "another attempt")
    eventually(lambda: len(slurm.jobs()) == 1 and number not in slurm.jobs(), "another in its place")
    cluster.wait_state(name, "RUNNING")
    cluster.stop(name)
    cluster.wait_over(name)


def test_pending_job_cancelled_in_slurm_is_stopped(cluster: Cluster, slurm: RealSlurm) -> None:
    later = {"openpaisdk": {"slurm": ["--begin=now+1hour"]}}
    name = cluster.accept(over_slurm("cancelled", "true", extras=later))
    eventually(slurm.jobs, "its submission")
    slurm.ask("scancel", *slurm.jobs())
    over = cluster.wait_over(name)
    assert (over["state"], over["retries"]) == ("STOPPED", 0)
    says(cluster, name, "as CANCELLED.")
    assert not slurm.jobs()


@pytest.mark.parametrize("restarted", [False, True])
def test_job_stopped_while_slurm_is_down_is_cancelled_later(
    slurm: RealSlurm, tmp_path: Path, restarted: bool
) -> None:
    cluster = make(tmp_path / "own", slurm, impatient=True).start()
    try:
        later = {"openpaisdk": {"slurm": ["--begin=now+1hour"]}}
        waits = cluster.accept(over_slurm("waits", "true", extras=later))
        says(cluster, waits, "(BeginTime)")
        runs = cluster.accept(over_slurm("runs", "echo up; exec sleep 600"))
        cluster.wait_state(runs, "RUNNING")
        slurm.kill_controller(signal.SIGTERM)
        try:
            late = cluster.accept(over_slurm("late", "true"))
            says(cluster, late, "does not respond")
            for name in (waits, runs, late):
                cluster.stop(name)
            for name in (waits, runs, late):
                assert cluster.wait_over(name)["state"] == "STOPPED"
            if restarted:
                cluster.kill()
        finally:
            slurm.start_controller()
        if restarted:
            cluster.start()
        eventually(lambda: not slurm.jobs(), "an empty queue")
    finally:
        cluster.close()


def telling(cluster: Cluster) -> list[str]:
    """Pids of the server's running scancel commands."""
    assert cluster.process is not None
    # Any thread may have started them.
    threads = Path(f"/proc/{cluster.process.pid}/task").glob("*/children")
    return [pid for thread in threads for pid in thread.read_text().split() if _is_scancel(pid)]


def _is_scancel(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"scancel\0")
    except OSError:  # exited meanwhile
        return False


def test_stop_does_not_block_while_slurm_is_down(cluster: Cluster, slurm: RealSlurm) -> None:
    name = cluster.accept(over_slurm("stopped", "echo up; exec sleep 600"))
    cluster.wait_state(name, "RUNNING")
    controller = int((slurm.folder / "run" / "slurmctld.pid").read_text())
    os.kill(controller, signal.SIGSTOP)
    try:
        cluster.stop(name)
        eventually(lambda: telling(cluster), "the word to Slurm")
        unheard = telling(cluster)
        assert cluster.run(job("meanwhile", "true"))["state"] == "SUCCEEDED"
        assert telling(cluster) == unheard, "it ran only when Slurm was given up"
        assert cluster.wait_over(name)["state"] == "STOPPED"
    finally:
        os.kill(controller, signal.SIGCONT)
    eventually(lambda: not slurm.jobs(), "its end in Slurm")


async def test_many_rejected_submissions_do_not_flood_slurm(slurm: RealSlurm, tmp_path: Path) -> None:
    rig = SlurmRig(slurm, tmp_path / "shared")
    many = [task(rig, "true", gpu_count=9) for _ in range(40)]
    async with Driven(rig) as driven:
        engine = driven.engine
        assert isinstance(engine, SlurmEngine)
        for one in many:
            await driven.launch(one)
        await appears(lambda: engine.calls.get("sbatch", 0) >= len(many), "each to be tried")
        before, began = engine.calls["sbatch"], time.monotonic()
        await appears(lambda: time.monotonic() - began > 8, "some seconds")
        assert engine.calls["sbatch"] - before <= 10
        assert {(await driven.look(one.uid)).phase for one in many} == {Phase.QUEUED}
        await engine.stop([one.uid for one in many], 0)
    rig.close()
