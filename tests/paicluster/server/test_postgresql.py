"""A server whose database is one of a real PostgreSQL: jobs, restarts of either, wrong addresses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paicluster.cli import main
from support.databases import new_database
from support.postgresql_server import PostgresqlServer, postgresql_folder
from support.server_fixture import Cluster, eventually, job

pytestmark = [pytest.mark.service, pytest.mark.slow(10)]

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def own_server() -> Iterator[PostgresqlServer]:
    """A database server of one test, which stops and starts it."""
    with postgresql_folder() as folder:
        server = PostgresqlServer.create(folder).start()
        try:
            yield server
        finally:
            server.stop(at_once=True)


@pytest.fixture
def cluster_on(new_cluster: MakeCluster) -> Callable[[PostgresqlServer], Cluster]:
    """Factory of a cluster with an empty database, not yet started."""

    def make(server: PostgresqlServer) -> Cluster:
        cluster = new_cluster()
        configure(cluster.home, server.url(new_database(server)))
        return cluster

    return make


def configure(home: Path, url: str, more: str = "") -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "cluster.yaml").write_text(f"database: {url}\n{more}")


def test_jobs_run_and_are_adopted_by_the_next_server(
    cluster_on: Callable[[PostgresqlServer], Cluster], postgresql_server: PostgresqlServer
) -> None:
    cluster = cluster_on(postgresql_server).start()
    assert cluster.run(job("first", "echo hello"))["state"] == "SUCCEEDED"
    assert b"hello" in cluster.log_of("first")
    assert cluster.run(job("second", "exit 3"))["state"] == "FAILED"
    assert cluster.submit(job("first", "true")).status == 409
    gate = cluster.home / "gate"
    cluster.accept(job("long", f"while [ ! -e {gate} ]; do sleep 0.1; done"))
    cluster.wait_state("long", "RUNNING")
    cluster.kill()
    assert not (cluster.home / "cluster.db").exists()
    cluster.start()
    assert cluster.status("long")["state"] == "RUNNING"
    gate.touch()
    assert cluster.wait_over("long")["state"] == "SUCCEEDED"
    listed = cluster.get("/api/v2/jobs?withTotalCount=true&keyword=on").json()
    assert [one["name"] for one in listed["data"]] == ["long", "second"]
    assert cluster.status("long")["retries"] == 0


def test_requests_wait_for_a_database_that_is_restarted(
    own_server: PostgresqlServer, cluster_on: Callable[[PostgresqlServer], Cluster]
) -> None:
    cluster = cluster_on(own_server).start()
    statuses: list[int] = []
    done = threading.Event()

    def submit() -> None:
        while not done.is_set():
            number = len(statuses)
            statuses.append(cluster.submit(job(f"job-{number}", "true"), key=f"key-{number}").status)

    submitting = threading.Thread(target=submit)
    submitting.start()
    try:
        for at_once in (False, True):
            before = len(statuses)
            eventually(lambda before=before: len(statuses) > before + 5, "submissions")
            own_server.stop(at_once=at_once)
            own_server.start()
        before = len(statuses)
        eventually(lambda before=before: len(statuses) > before + 5, "submissions after the restarts")
    finally:
        done.set()
        submitting.join()
    assert set(statuses) == {202}
    for number in range(len(statuses)):
        assert cluster.wait_over(f"job-{number}")["state"] == "SUCCEEDED"
    listed = cluster.get("/api/v2/jobs?withTotalCount=true").json()
    assert listed["totalCount"] == len(statuses)


def test_requests_fail_with_advice_while_the_database_is_down_and_work_again_later(
    own_server: PostgresqlServer, cluster_on: Callable[[PostgresqlServer], Cluster]
) -> None:
    cluster = cluster_on(own_server).start()
    gate = cluster.home / "gate"
    cluster.accept(job("long", f"while [ ! -e {gate} ]; do sleep 0.1; done"))
    cluster.wait_state("long", "RUNNING")
    own_server.stop()
    refused = cluster.submit(job("refused", "true"))
    assert refused.status == 503
    assert "does not answer" in refused.json()["message"]
    assert "goes on by itself" in refused.text
    started = time.monotonic()
    listed = cluster.get("/api/v2/jobs")
    assert listed.status == 503, listed.text
    # The first request has waited; others are not to wait again.
    assert time.monotonic() - started < 9
    gate.touch()
    own_server.start()
    # The end of the task is recorded although the database was down when it came.
    eventually(lambda: cluster.get("/api/v2/jobs").status == 200, "the database")
    assert cluster.wait_over("long")["state"] == "SUCCEEDED"
    assert cluster.run(job("next", "true"))["state"] == "SUCCEEDED"


def test_second_server_of_a_database_is_refused(
    new_cluster: MakeCluster, postgresql_server: PostgresqlServer
) -> None:
    url = postgresql_server.url(new_database(postgresql_server))
    first, second = new_cluster("first"), new_cluster("second")
    configure(first.home, url)
    configure(second.home, url)
    first.start()
    process = second.spawn()
    assert process.wait(90) == 1
    assert "Another server uses the cluster's database" in second.log.read_text()
    assert "Traceback" not in second.log.read_text()
    assert first.run(job("works", "true"))["state"] == "SUCCEEDED"


def test_password_comes_from_a_file(
    new_cluster: MakeCluster, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    server = postgresql_server
    # An ordinary account, and an empty database.
    database = account = f"cluster_{os.getpid()}_with_password"
    server.execute(f"CREATE ROLE {account} LOGIN PASSWORD 'secret-4711'")
    server.execute(f"CREATE DATABASE {database} OWNER {account}")
    cluster = new_cluster()
    url = f"postgresql://{account}@127.0.0.1:{server.port}/{database}"
    password = tmp_path / "password"
    password.write_text("wrong\n")
    configure(cluster.home, url, f"database-password-file: {password}\n")
    process = cluster.spawn()
    assert process.wait(90) == 1
    log = cluster.log.read_text()
    assert "password authentication failed" in log and "database-password-file" in log
    assert "Traceback" not in log
    password.write_text("secret-4711\n")
    cluster.start_command()
    assert cluster.run(job("works", "true"))["state"] == "SUCCEEDED"
    assert cluster.process is not None
    shown = Path(f"/proc/{cluster.process.pid}/cmdline").read_bytes() + cluster.log.read_bytes()
    assert b"secret-4711" not in shown


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["backup", "--home", "HOME", "file"], "pg_dump"),
        (["check-store", "--home", "HOME"], "pg_amcheck"),
        (["restore-store", "--home", "HOME"], "pg_restore"),
    ],
)
def test_commands_on_files_name_the_programs_of_postgresql(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], advice: str
) -> None:
    configure(tmp_path, "postgresql://db/pai")
    words = [str(tmp_path) if word == "HOME" else word for word in command]
    assert main(words) == 1
    assert advice in capsys.readouterr().err
