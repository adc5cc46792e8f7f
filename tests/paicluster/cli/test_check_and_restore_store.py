"""`paicluster check-store` and `restore-store`: from a damaged database back to a working cluster."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.cli import main
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job, new_cluster_fixture  # noqa: F401

PAGE = 4096


def paicluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: a new one takes seconds to start on a busy machine."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def serve(home: Path) -> subprocess.CompletedProcess[str]:
    """Run a server that does not start."""
    command = [sys.executable, "-m", "paicluster", "serve", "--home", str(home), "--port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    prepare_database(tmp_path / "home", [f"user{number}" for number in range(50)])
    return tmp_path / "home"


def damage(database: Path) -> None:
    with database.open("r+b") as file:
        for page in range(4, database.stat().st_size // PAGE, 3):
            file.seek(page * PAGE)
            file.write(os.urandom(PAGE))


def test_sound_database_is_reported(home: Path) -> None:
    done = paicluster("check-store", "--home", str(home))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"The database {home}/cluster.db is sound (")


def test_damage_is_listed_with_the_way_back(home: Path) -> None:
    damage(home / "cluster.db")
    done = paicluster("check-store", "--home", str(home))
    assert done.returncode == 1
    assert 1 <= len(done.stdout.splitlines()) <= 20
    assert done.stderr.splitlines() == [
        f"paicluster: The cluster's database {home}/cluster.db is damaged.",
        "Return to a backup: paicluster restore-store --home DIR lists them.",
    ]


def test_folder_without_a_cluster_is_rejected(tmp_path: Path) -> None:
    done = paicluster("check-store", "--home", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"paicluster: There is no cluster in {tmp_path}.\n")
    done = paicluster("restore-store", "--home", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stderr) == (1, f"paicluster: There is no cluster in {tmp_path}/nowhere.\n")


def test_backups_are_listed_also_if_there_are_none(home: Path) -> None:
    done = paicluster("restore-store", "--home", str(home))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"There are no backups in {home}/database-backups yet.\n"
    done = paicluster("restore-store", "--home", str(home), "-o", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    for name in ("latest", "cluster-1.db"):
        done = paicluster("restore-store", "--home", str(home), name)
        assert done.returncode == 1
        assert done.stderr.startswith("paicluster: There "), done


@pytest.mark.slow
def test_running_cluster_is_backed_up_and_returns_to_the_backup(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The steps of docs/running-a-cluster.md, with a database that is really damaged."""
    cluster = new_cluster()
    prepare_database(cluster.home)
    cluster.start()
    cluster.run(job("kept", "echo kept"))
    assert cluster.terminate() == 0
    cluster.start("--clean-after", "0")
    backups = cluster.home / "database-backups"
    eventually(lambda: list(backups.glob("cluster-*Z.db")), "the backup")
    eventually(lambda: "backed up the database to" in cluster.log.read_text(), "its message")
    # A backup is due every hour: the next start makes no other one.
    cluster.run(job("later", "echo later"))
    busy = paicluster("restore-store", "--home", str(cluster.home), "latest")
    assert busy.returncode == 1
    assert "Another server is running" in busy.stderr
    sound = paicluster("check-store", "--home", str(cluster.home))
    assert sound.returncode == 0, sound
    cluster.kill()
    damage(cluster.home / "cluster.db")
    refused = serve(cluster.home)
    assert refused.returncode == 1
    assert "is damaged" in refused.stderr
    assert "Traceback" not in refused.stderr
    listed = json.loads(paicluster("restore-store", "--home", str(cluster.home), "-o", "json").stdout)
    assert [row["path"] for row in listed] == [str(path) for path in backups.glob("cluster-*.db")]
    done = paicluster("restore-store", "--home", str(cluster.home), listed[0]["name"])
    assert done.returncode == 0, done
    said = done.stdout.splitlines()
    assert said[0] == f"The database is now that of {listed[0]['path']}."
    (aside,) = cluster.home.glob("replaced-*")
    assert said[1].startswith(f"The files it replaced are in {aside}:")
    assert (aside / "cluster.db").exists()
    assert (aside / "cluster.db-wal").exists()
    cluster.start()
    assert {one["name"] for one in cluster.get("/api/v2/jobs").json()} == {"kept"}
    assert cluster.log_of("kept") == b"kept\n"
    assert cluster.run(job("after", "true"))["state"] == "SUCCEEDED"


def test_tasks_that_the_backup_does_not_know_are_stopped(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    prepare_database(cluster.home)
    cluster.start("--clean-after", "0")
    eventually(lambda: list((cluster.home / "database-backups").glob("cluster-*Z.db")), "the backup")
    cluster.accept(job("unknown", "sleep 600"))
    cluster.wait_state("unknown", "RUNNING")
    assert cluster.terminate() == 0
    done = paicluster("restore-store", "--home", str(cluster.home), "latest")
    assert done.returncode == 0, done
    last = done.stdout.splitlines()[-1]
    assert last == "Tasks of jobs that the backup does not contain were stopped: 1."
    eventually(lambda: not cluster.processes(), "the end of the task")


@pytest.mark.slow
def test_lost_log_is_accepted_on_request(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    prepare_database(cluster.home)
    cluster.start()
    cluster.run(job("lost", "true"))
    accepting = paicluster("check-store", "--home", str(cluster.home), "--accept")
    assert accepting.returncode == 1
    assert "Another server is running" in accepting.stderr
    cluster.kill()
    (cluster.home / "cluster.db-wal").unlink()
    for done in (paicluster("check-store", "--home", str(cluster.home)), serve(cluster.home)):
        assert done.returncode == 1
        assert "cluster.db-wal is missing, though the last server did not shut down" in done.stderr
        assert "paicluster check-store --accept" in done.stderr
    done = paicluster("check-store", "--home", str(cluster.home), "--accept")
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "The next server starts with the database as it is."
    cluster.start()
    assert cluster.run(job("after", "true"))["state"] == "SUCCEEDED"


def test_backups_are_configured_in_the_file(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster()
    prepare_database(cluster.home)
    (cluster.home / "cluster.yaml").write_text("backups: {folder: ../elsewhere, every: 1s, keep: 1d}\n")
    cluster.start("--clean-after", "0")
    elsewhere = tmp_path / "elsewhere"
    eventually(lambda: list(elsewhere.glob("cluster-*Z.db")), "the first backup")
    cluster.accept(job("one", "true"))
    eventually(lambda: len(list(elsewhere.glob("cluster-*Z.db"))) > 1, "the second backup")
    listed = paicluster("restore-store", "--home", str(cluster.home))
    assert listed.stdout.splitlines()[0].split() == ["BACKUP", "TAKEN", "BYTES"]
    assert len(listed.stdout.splitlines()) > 2
