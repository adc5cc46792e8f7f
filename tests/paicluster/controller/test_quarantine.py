"""A job that cannot be written is quarantined: others run, and it resumes once it can be written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from support.server_fixture import FINISHED_STATES, Cluster, eventually, job

MakeCluster = Callable[..., Cluster]

TWO_CORES = ("--embedded", "--cpus", "2", "--memory-mb", "4096", "--gpus", "0", "--grace", "1")
REASON = "The job is quarantined after an unexpected error ("


def run_sql(cluster: Cluster, statement: str) -> None:
    with closing(sqlite3.connect(cluster.home / "cluster.db", timeout=90)) as database:
        database.execute(statement)
        database.commit()


def forbid(cluster: Cluster, operation: str) -> None:
    """Make this operation fail for the job ``bad``."""
    condition = "NEW.job_id IN (SELECT id FROM jobs WHERE name = 'bad')"
    run_sql(
        cluster,
        f"CREATE TRIGGER forbidden BEFORE {operation} WHEN {condition} "
        "BEGIN SELECT RAISE(ABORT, 'forbidden'); END",
    )


def allow(cluster: Cluster) -> None:
    run_sql(cluster, "DROP TRIGGER forbidden")


def reason(cluster: Cluster) -> str:
    return str(cluster.detail("bad").get("reason", ""))


def wait_quarantined(cluster: Cluster) -> None:
    eventually(lambda: REASON in reason(cluster), "the quarantine of the job")


def test_other_jobs_run_and_the_bad_one_resumes_when_writable(
    new_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = new_cluster(options=TWO_CORES).start()
    go = tmp_path / "go"
    cluster.accept(job("bad", f"until [ -e {go} ]; do sleep 0.02; done", "echo whole"))
    cluster.wait_state("bad", "RUNNING")
    assert cluster.metric("paicluster_jobs_quarantined") == 0
    forbid(cluster, "UPDATE ON tasks")
    go.touch()
    wait_quarantined(cluster)
    assert cluster.metric("paicluster_jobs_quarantined") == 1
    assert "forbidden" in reason(cluster)
    assert cluster.events("bad")[0]["message"] == reason(cluster)
    for number in range(3):
        assert cluster.run(job(f"other-{number}", "true"))["state"] == "SUCCEEDED"
    assert cluster.get("/healthz", token=None).status == 200, "the cluster itself is healthy"
    # The same after a restart.
    cluster.kill()
    assert cluster.log.read_text().count("bad quarantined after an unexpected error") == 1
    cluster.start()
    assert cluster.run(job("after-a-restart", "true"))["state"] == "SUCCEEDED"
    wait_quarantined(cluster)
    # It keeps its allocation: one core is free.
    cluster.accept(job("large", "true", cpu=2))
    eventually(lambda: "Insufficient cpu" in str(cluster.events("large")), "the pending reason")

    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "SUCCEEDED"
    assert not reason(cluster)
    eventually(lambda: not cluster.metric("paicluster_jobs_quarantined"), "the end of the quarantine")
    assert cluster.log_of("bad") == b"whole\n"
    assert cluster.wait_over("large")["state"] == "SUCCEEDED"
    assert "left quarantine" in cluster.log.read_text()


def test_unstartable_job_has_no_allocation(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(options=TWO_CORES).start()
    forbid(cluster, "INSERT ON tasks")
    cluster.accept(job("bad", "echo ran", cpu=2))
    wait_quarantined(cluster)
    listed = cluster.get("/api/v2/jobs?reasons=true").json()
    assert [REASON in one["reason"] for one in listed] == [True]
    assert cluster.run(job("other", "true", cpu=2))["state"] == "SUCCEEDED"
    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "SUCCEEDED"
    assert cluster.log_of("bad") == b"ran\n"


@pytest.mark.parametrize("gang", [True, False])
def test_quarantined_job_can_be_stopped(new_cluster: MakeCluster, tmp_path: Path, gang: bool) -> None:
    cluster = new_cluster(options=TWO_CORES).start()
    pids = tmp_path / "pids"
    extras = {"extras": {"gangAllocation": gang}}
    cluster.accept(job("bad", f"echo $$ >> {pids}", "sleep 600", instances=2, **extras))
    numbers = eventually(
        lambda: pids.exists() and len(n := pids.read_text().split()) == 2 and n, "both tasks"
    )
    cluster.wait_state("bad", "RUNNING")
    forbid(cluster, "UPDATE ON tasks")
    assert cluster.stop("bad").status == 202
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in numbers), "the end of its tasks")
    wait_quarantined(cluster)
    assert cluster.status("bad")["state"] not in FINISHED_STATES
    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "STOPPED"
    tasks = cluster.detail("bad")["taskRoles"]["main"]["taskStatuses"]
    assert {task["taskState"] for task in tasks} == {"STOPPED"}
