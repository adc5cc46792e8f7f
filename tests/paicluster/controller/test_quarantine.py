"""One job that cannot be written down is set aside: all others go on, and so does it when it can be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from support.server_fixture import OVER, Cluster, eventually, job

MakeCluster = Callable[..., Cluster]

TWO_CORES = ("--embedded", "--cpus", "2", "--memory-mb", "4096", "--gpus", "0", "--grace", "1")
WORDS = "The cluster cannot go on with this job because of an unexpected error ("


def run_sql(cluster: Cluster, statement: str) -> None:
    with closing(sqlite3.connect(cluster.home / "cluster.db", timeout=30)) as database:
        database.execute(statement)
        database.commit()


def forbid(cluster: Cluster, what: str, of: str = "job_id") -> None:
    """From now on nothing of the kind is written of the job ``bad``."""
    wanted = f"NEW.{of} IN (SELECT id FROM jobs WHERE name = 'bad')"
    run_sql(
        cluster,
        f"CREATE TRIGGER forbidden BEFORE {what} WHEN {wanted} BEGIN SELECT RAISE(ABORT, 'forbidden'); END",
    )


def allow(cluster: Cluster) -> None:
    run_sql(cluster, "DROP TRIGGER forbidden")


def reason(cluster: Cluster) -> str:
    return str(cluster.detail("bad").get("reason", ""))


def wait_set_aside(cluster: Cluster) -> None:
    eventually(lambda: WORDS in reason(cluster), "the job's being set aside")


def test_others_run_to_their_end_and_the_bad_one_goes_on_when_it_can(
    new_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = new_cluster(options=TWO_CORES).start()
    go = tmp_path / "go"
    cluster.accept(job("bad", f"until [ -e {go} ]; do sleep 0.02; done", "echo whole"))
    cluster.wait_state("bad", "RUNNING")
    assert cluster.figure("paicluster_jobs_quarantined") == 0
    forbid(cluster, "UPDATE ON tasks")
    go.touch()
    wait_set_aside(cluster)
    assert cluster.figure("paicluster_jobs_quarantined") == 1
    assert "forbidden" in reason(cluster)
    assert cluster.events("bad")[0]["message"] == reason(cluster)
    for number in range(3):
        assert cluster.run(job(f"other-{number}", "true"))["state"] == "SUCCEEDED"
    assert cluster.get("/healthz", token=None).status == 200, "it is not the cluster that is in trouble"
    # A new server finds the same.
    cluster.kill()
    assert cluster.log.read_text().count("bad is set aside") == 1
    cluster.start()
    assert cluster.run(job("after-a-restart", "true"))["state"] == "SUCCEEDED"
    wait_set_aside(cluster)
    # What it holds stays its own: one core is left.
    cluster.accept(job("large", "true", cpu=2))
    eventually(lambda: "Insufficient cpu" in str(cluster.events("large")), "a word on why it waits")

    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "SUCCEEDED"
    assert not reason(cluster)
    eventually(lambda: not cluster.figure("paicluster_jobs_quarantined"), "the job's being gone on with")
    assert cluster.log_of("bad") == b"whole\n"
    assert cluster.wait_over("large")["state"] == "SUCCEEDED"
    assert "goes on with the job" in cluster.log.read_text()


def test_one_that_cannot_be_started_holds_nothing(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(options=TWO_CORES).start()
    forbid(cluster, "INSERT ON tasks")
    cluster.accept(job("bad", "echo ran", cpu=2))
    wait_set_aside(cluster)
    listed = cluster.get("/api/v2/jobs?reasons=true").json()
    assert [WORDS in one["reason"] for one in listed] == [True]
    assert cluster.run(job("other", "true", cpu=2))["state"] == "SUCCEEDED"
    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "SUCCEEDED"
    assert cluster.log_of("bad") == b"ran\n"


@pytest.mark.parametrize("gang", [True, False])
def test_one_that_is_set_aside_can_be_stopped(new_cluster: MakeCluster, tmp_path: Path, gang: bool) -> None:
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
    wait_set_aside(cluster)
    assert cluster.status("bad")["state"] not in OVER
    allow(cluster)
    assert cluster.wait_over("bad")["state"] == "STOPPED"
    tasks = cluster.detail("bad")["taskRoles"]["main"]["taskStatuses"]
    assert {task["taskState"] for task in tasks} == {"STOPPED"}
