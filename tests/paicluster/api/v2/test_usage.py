"""Usage of real tasks on a real server: now, over time, at `/metrics`, after a restart."""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job

MB = 1 << 20
# A core, and 100 MB that are really used, until it is stopped.
BURN = f"""exec {sys.executable} -c '
data = bytearray(b"x") * (100 << 20)
while True:
    pass
'"""
IDLE = "exec sleep 1000"
# As a make that starts compilers: nearly all of the time is used by processes that have ended.
SHORT_PROCESSES = f"while true; do {sys.executable} -S -c 'sum(range(3_000_000))'; done"


@pytest.fixture(scope="module", name="cluster")
def sampled_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that samples every second."""
    home = tmp_path_factory.mktemp("usage") / "home"
    prepare_database(home)
    (home / "cluster.yaml").write_text("usage: {every: 1s}\n")
    running = Cluster(home).start()
    yield running
    running.close()


@pytest.fixture(scope="module", name="burning")
def burning_job(cluster: Cluster) -> Iterator[str]:
    """A job with a task that uses a core and 100 MB, and one that uses nothing."""
    spec = job("burning", BURN, memory_mb=200)
    spec["taskRoles"]["idle"] = job("idle", IDLE)["taskRoles"]["main"]
    name = cluster.accept(spec)
    cluster.wait_state(name, "RUNNING")
    yield name
    cluster.stop(name)


def usage_of(cluster: Cluster, name: str, query: str = "") -> dict[str, Any]:
    reply = cluster.get(cluster.path(name, f"/usage{query}"))
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def tasks_of(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    return {task["role"]: task for task in usage_of(cluster, name)["tasks"]}


def measured(cluster: Cluster, name: str) -> dict[str, dict[str, Any]] | None:
    """The job's tasks once both are measured, have started and the memory is filled.

    On a loaded machine a task that computes gets only a part of a core.
    """
    tasks = tasks_of(cluster, name)
    is_measured = len(tasks) == 2 and tasks["main"]["memory"] > 90 * MB
    return tasks if is_measured and tasks["main"]["cpu"] > 0.05 and tasks["idle"]["cpu"] < 0.02 else None


def test_a_task_that_computes_is_told_from_one_that_waits(cluster: Cluster, burning: str):
    tasks = eventually(lambda: measured(cluster, burning), "a sample of both tasks")

    assert 100 * MB < tasks["main"]["memory"] < 200 * MB
    assert tasks["main"]["memoryTotal"] == 200 * MB
    assert tasks["idle"]["memory"] < 60 * MB
    assert tasks["main"]["gpu"] is None or tasks["main"]["gpu"] >= 0


def test_usage_over_time_of_job_and_task(cluster: Cluster, burning: str):
    def grown() -> dict[str, Any] | None:
        series: dict[str, Any] = usage_of(cluster, burning)["series"]
        return series if len(series["times"]) >= 2 else None

    series = eventually(grown, "two points")

    assert series["times"] == sorted(series["times"])
    assert {len(column) for column in series.values()} == {len(series["times"])}
    of_task = usage_of(cluster, burning, "?role=idle&index=0")["series"]
    assert of_task["times"]
    assert max(of_task["memory"]) < max(series["memory"])
    assert usage_of(cluster, burning, "?role=idle&index=7")["series"]["times"] == []
    refused = cluster.get(cluster.path(burning, "/usage?index=1"))
    assert (refused.status, "role" in refused.json()["message"]) == (400, True)


def test_processes_that_have_ended_count(cluster: Cluster):
    name = cluster.accept(job("short", SHORT_PROCESSES))

    eventually(
        lambda: any(task["cpu"] > 0.05 for task in usage_of(cluster, name)["tasks"]), "CPU time of children"
    )
    cluster.stop(name)


def counts_written_bytes(folder: Path) -> bool:
    """Whether the kernel counts what is written there: in a file system in memory it does not."""

    def written() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))

    before = written()
    with (folder / "probe").open("wb") as file:
        file.write(b"x" * MB)
        file.flush()
        os.fsync(file.fileno())
    return written() > before


def test_written_bytes_are_measured(cluster: Cluster, tmp_path: Path):
    if not counts_written_bytes(tmp_path):
        pytest.skip("the kernel does not count bytes that are written to the tests' folder")
    write = "while true; do dd if=/dev/zero of=file bs=1M count=20 conv=fsync 2>/dev/null; done"
    name = cluster.accept(job("writes", write))

    eventually(
        lambda: any(task["write"] > MB for task in usage_of(cluster, name)["tasks"]), "a rate of writing"
    )
    cluster.stop(name)


def test_nodes_virtual_clusters_and_jobs_now(cluster: Cluster, burning: str):
    eventually(lambda: measured(cluster, burning), "a sample of both tasks")
    now = cluster.get("/api/v2/usage").json()

    (node,) = now["nodes"]
    assert node["cpu"] > 0
    assert node["memory"] > 100 * MB
    assert node["cpuTotal"] == 64
    (default,) = [vc for vc in now["virtualClusters"] if vc["name"] == "default"]
    assert default["memory"] > 100 * MB
    (mine,) = [one for one in now["jobs"] if one["name"] == burning]
    assert (mine["user"], mine["tasks"], mine["virtualCluster"]) == (cluster.user, 2, "default")
    assert mine["cpu"] > 0
    assert cluster.get("/api/v2/usage?user=nobody").json()["jobs"] == []
    assert now["server"]["memory"] > 10 * MB


def test_series_of_node_and_virtual_cluster(cluster: Cluster, burning: str):
    eventually(lambda: measured(cluster, burning), "a sample of both tasks")
    name = cluster.get("/api/v2/usage").json()["nodes"][0]["name"]

    for path in (f"nodes/{name}", "virtual-clusters/default"):
        series = cluster.get(f"/api/v2/usage/{path}").json()["series"]
        assert max(series["memory"]) > 100 * MB
        assert max(series["cpu"]) > 0
    for path in ("nodes/none", "virtual-clusters/none"):
        reply = cluster.get(f"/api/v2/usage/{path}")
        assert (reply.status, "none" in reply.json()["message"]) == (404, True)


def test_metrics_have_openpais_names_and_labels(cluster: Cluster, burning: str):
    eventually(lambda: measured(cluster, burning), "a sample of both tasks")
    lines = cluster.get("/metrics").text.splitlines()

    labels = f'username="{cluster.user}",job_name="{cluster.user}~{burning}",role_name="main",task_index="0"'
    for name in ("task_cpu_percent", "task_mem_usage_byte", "task_mem_limit_byte"):
        (line,) = [line for line in lines if line.startswith(f"{name}{{{labels}")]
        assert float(line.split()[-1]) > 0
    assert any(line.startswith("paicluster_node_used_cpu_cores{node=") for line in lines)
    assert any(line.startswith("paicluster_virtual_cluster_used_memory_bytes{virtual_") for line in lines)
    assert any(line.startswith("paicluster_server_used_memory_bytes ") for line in lines)


def test_history_survives_a_restart_and_goes_with_its_job(cluster: Cluster):
    name = cluster.accept(job("kept", BURN))
    eventually(lambda: usage_of(cluster, name)["series"]["times"], "a point")
    assert cluster.terminate() == 0
    stored = jobs_with_history(cluster)
    cluster.start()
    before = usage_of(cluster, name)["series"]["times"]
    assert before

    eventually(lambda: len(usage_of(cluster, name)["series"]["times"]) > len(before), "a further point")
    cluster.stop(name)
    cluster.wait_over(name)
    assert usage_of(cluster, name)["series"]["times"]
    assert cluster.ask("DELETE", f"/api/v1/jobs/{name}").status == 202
    assert cluster.get(cluster.path(name, "/usage")).status == 404
    assert len(stored - jobs_with_history(cluster)) == 1


def jobs_with_history(cluster: Cluster) -> set[int]:
    with contextlib.closing(sqlite3.connect(cluster.home / "usage.db")) as connection:
        return {job_id for (job_id,) in connection.execute("SELECT job FROM ring WHERE job > 0")}
