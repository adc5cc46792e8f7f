"""Crash recovery: `kill -9`, lost supervisors, a full disk, a reboot; no job is lost and none runs twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.process import cgroups
from support.event_job import EventJob
from support.server_fixture import FINISHED_STATES, Cluster, eventually, job
from support.server_kills import SERVER_DOWN, all_jobs_finished, kill_after_acceptance, kill_under_load
from support.small_disk import fill, mounted

MakeCluster = Callable[..., Cluster]


def folder_of(cluster: Cluster, name: str) -> Path:
    uid = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    return cluster.home / "tasks" / uid[:2] / uid


# -- kill -9 of the server ------------------------------------------------------------------------


@pytest.mark.slow
def test_server_kills_under_load(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Dozens of them are in `tests/large`."""
    kill_under_load(new_cluster().start(), tmp_path / "ran", 8)


KILLED_WHILE_PROBING = """
import os, signal, sys
from paicluster.engines.process import cgroups
from pairuntime.supervisor import process_tree

# Called when the probe's process is in its cgroup.
process_tree.Cgroup.kill = lambda group: os.kill(os.getpid(), signal.SIGKILL)
cgroups.choose(sys.argv[1])
"""


def test_kill_during_the_cgroup_probe_leaves_no_process(tmp_path: Path) -> None:
    """A remaining process would hold the lock of the home, and no server could start there again."""
    environment = {**os.environ, "MARKER_OF_THIS_TEST": str(tmp_path)}
    name = f"pai-test-{os.getpid()}"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_PROBING, name], env=environment, check=False, timeout=90
    )
    assert killed.returncode == -signal.SIGKILL

    def left() -> list[str]:
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"MARKER_OF_THIS_TEST={tmp_path}\0".encode() in path.read_bytes():
                    pids.append(path.parent.name)
        return pids

    eventually(lambda: not left(), "the end of the probe")
    for _, parent in cgroups._candidates():
        for folder in (*(parent / name).glob("probe-*"), parent / name):
            with contextlib.suppress(OSError):
                folder.rmdir()


@pytest.mark.slow
def test_kill_right_after_the_job_is_accepted(new_cluster: MakeCluster, tmp_path: Path) -> None:
    kill_after_acceptance(new_cluster().start(), tmp_path / "ran", 8)


@pytest.mark.slow
def test_jobs_that_end_while_the_server_is_down(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Between the exit and its recording: the supervisor's record is found later."""
    cluster = new_cluster().start()
    for turn in range(4):
        names = [f"ends-{turn}-{number}" for number in range(4)]
        go = tmp_path / f"go-{turn}"
        for number, name in enumerate(names):
            wait = f"until [ -e {go} ]; do sleep 0.01; done"
            cluster.accept(job(name, f"echo {name}", wait, "echo after", f"exit {number}"))
        for name in names:
            cluster.wait_state(name, "RUNNING")
        assert cluster.process is not None
        if turn % 2:
            # Frozen while the tasks end, killed before it can observe them.
            cluster.process.send_signal(signal.SIGSTOP)
            go.touch()
            time.sleep(0.1 * turn)
        else:
            go.touch()
            time.sleep(0.01 * turn)
        cluster.kill()
        ended = [folder_path / "exit.json" for folder_path in claimed(cluster)]
        eventually(lambda ended=ended: all(path.exists() for path in ended), "the records")
        cluster.start()
        for number, name in enumerate(names):
            status = cluster.wait_over(name)
            assert (status["state"], status["retries"]) == ("FAILED" if number else "SUCCEEDED", 0)
            if number:
                assert status["appExitMessages"]["runtime"]["originUserExitCode"] == number
            assert cluster.log_of(name) == f"{name}\nafter\n".encode()


def claimed(cluster: Cluster) -> list[Path]:
    return [path.parent for path in (cluster.home / "tasks").glob("*/*/claim")]


@pytest.mark.slow
def test_event_files_of_a_running_task_are_counted_once(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """The server is killed between a look at the metrics of the task and the next one, and while it reads."""
    cluster = new_cluster().start()
    writer = EventJob(cluster, "writes-events", tmp_path / "parts")
    dice = random.Random(7)
    writer.write()
    eventually(writer.has_row, "the values of the running task")
    for _ in range(2):
        writer.write()
        cluster.kill()
        cluster.start()
        connection = cluster.connect()
        authorization = {"Authorization": f"Bearer {cluster.token}"}
        connection.request("GET", f"/api/v2/runs?jobs={cluster.user}~{writer.name}", headers=authorization)
        time.sleep(dice.random() * 0.3)
        cluster.kill()
        connection.close()
        cluster.start()
        eventually(writer.has_row, "the values of the running task")
    assert cluster.detail(writer.name)["jobStatus"]["state"] == "RUNNING"
    writer.write()
    cluster.kill()
    cluster.start()
    writer.end()
    eventually(writer.has_row, "the values at the end")


@pytest.mark.slow
def test_reconnecting_follower_misses_nothing(new_cluster: MakeCluster) -> None:
    """The server is killed while it sends; by offset each byte arrives once."""
    cluster = new_cluster().start()
    cluster.accept(job("talks", "for i in $(seq 600); do echo line $i; sleep 0.005; done"))
    received = b""
    position = "0.0:0"
    dice = random.Random(7)
    ended: list[dict[str, Any]] = []
    while not ended:
        with contextlib.suppress(*SERVER_DOWN):
            stream = cluster.follow("talks", **{"from": position})
            pieces = dice.randrange(1, 80)
            for frame in stream:
                if frame["kind"] == "log":
                    assert frame["offset"] == len(received)
                    received += frame["data"]
                    position = f"{frame['attempt']}.{frame['taskAttempt']}:{len(received)}"
                    pieces -= 1
                    if not pieces:
                        cluster.kill()
                        cluster.start()
                if frame["kind"] == "end":
                    ended.append(frame)
    assert received == b"".join(b"line %d\n" % number for number in range(1, 601))
    assert ended == [{"kind": "end", "state": "SUCCEEDED", "exitCode": 0}]


@pytest.mark.slow
def test_accepted_stop_survives_a_kill(new_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = new_cluster().start()
    for number in range(6):
        cluster.accept(job(f"stopped-{number}", "sleep 600", instances=2))
        if number % 2:
            cluster.wait_state(f"stopped-{number}", "RUNNING")
        assert cluster.stop(f"stopped-{number}").status == 202
        time.sleep(number * 0.003)
        cluster.kill()
        cluster.start()
    for number in range(6):
        status = cluster.wait_over(f"stopped-{number}")
        assert (status["state"], status["appExitCode"]) == ("STOPPED", -210)


@pytest.mark.slow
def test_retries_and_their_delays_survive_a_kill(new_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = new_cluster().start()
    ran = tmp_path / "ran"
    delays_s = (0, 1, 2, 4)
    cluster.accept(
        job("again", f"echo $FC_FRAMEWORK_ATTEMPT_ID >> {ran}", "sleep 0.2", "exit 1", jobRetryCount=4)
    )
    started = time.monotonic()
    while cluster.status("again")["state"] not in FINISHED_STATES:
        time.sleep(0.4)
        cluster.kill()
        cluster.start()
    assert time.monotonic() - started > sum(delays_s)
    status = cluster.status("again")
    assert (status["state"], status["retries"], status["retryDetails"]["platform"]) == ("FAILED", 4, 0)
    assert ran.read_text().split() == [str(number) for number in range(5)]


# -- supervisors ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_kills_of_supervisor_and_server_together(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Repeatedly: the attempt is lost, its process tree is killed, the next one runs."""
    cluster = new_cluster().start()
    ran, pids = tmp_path / "ran", tmp_path / "pids"
    hang = f"if [ $(wc -l < {ran}) -le 3 ]; then sleep 600; fi"
    script = f"echo $PAI_CONTAINER_ID >> {ran}; (setsid sleep 600 & echo $! >> {pids}); echo $$ >> {pids}"
    cluster.accept(job("unlucky", script, hang))
    for turn in range(3):
        eventually(
            lambda turn=turn: pids.exists() and len(pids.read_text().split()) == 2 * turn + 2, "a start"
        )
        folder = folder_of(cluster, "unlucky")
        owner = json.loads((folder / "claim").read_text())["pid"]
        if turn == 1:
            os.kill(owner, signal.SIGKILL)
            cluster.kill()
        else:
            cluster.kill()
            os.kill(owner, signal.SIGKILL)
        cluster.start()
    status = cluster.wait_over("unlucky")
    assert (status["state"], status["retryDetails"]) == (
        "SUCCEEDED",
        {"user": 0, "platform": 3, "resource": 0},
    )
    uids = ran.read_text().split()
    assert len(uids) == len(set(uids)) == 4
    left = [pid for pid in map(int, pids.read_text().split()) if Path(f"/proc/{pid}").exists()]
    assert left == []


def test_running_tasks_are_retried_after_a_reboot(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Claims of another boot: the same pids may be other processes now, which must not be signaled."""
    cluster = new_cluster().start()
    ran = tmp_path / "ran"
    hang = f"if [ $(wc -l < {ran}) = 1 ]; then sleep 600; fi"
    cluster.accept(job("rebooted", f"echo $PAI_CONTAINER_ID >> {ran}", hang))
    cluster.wait_state("rebooted", "RUNNING")
    eventually(lambda: ran.exists() and ran.read_text(), "the start")
    folder = folder_of(cluster, "rebooted")
    claim = folder / "claim"
    owner = json.loads(claim.read_text())
    cluster.kill()
    for pid in cluster.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.processes(), "the power cut")
    # Our own pid stands for a process that now has the supervisor's pid.
    claim.write_text(json.dumps({**owner, "boot_id": "another-boot", "pid": os.getpid()}))
    (cluster.home / "server.json").unlink(missing_ok=True)
    cluster.start()
    status = cluster.wait_over("rebooted")
    assert (status["state"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 1)
    assert len(set(ran.read_text().split())) == 2


@pytest.mark.slow
def test_claim_torn_by_a_power_cut_is_a_lost_attempt(new_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = new_cluster().start()
    ran = tmp_path / "ran"
    hang = f"if [ $(wc -l < {ran}) = 1 ]; then sleep 600; fi"
    cluster.accept(job("torn", f"echo $PAI_CONTAINER_ID >> {ran}", hang))
    cluster.wait_state("torn", "RUNNING")
    eventually(lambda: ran.exists() and ran.read_text(), "the start")
    folder = folder_of(cluster, "torn")
    cluster.kill()
    for pid in cluster.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.processes(), "the power cut")
    (folder / "claim").write_bytes(b"")
    cluster.start()
    assert cluster.run(job("other", "true"))["state"] == "SUCCEEDED"
    assert cluster.wait_over("torn")["retryDetails"]["platform"] == 1


def change_database(cluster: Cluster, statement: str, *values: str) -> None:
    """Change the database of a killed server."""
    file = cluster.home / "cluster.db"
    # The last connection to close removes the log, unless it is read-only; the next server would miss it.
    with (
        closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as reader,
        closing(sqlite3.connect(file)) as writer,
    ):
        reader.execute("SELECT count(*) FROM job_specs").fetchone()
        writer.execute(statement, values)
        writer.commit()


def test_job_that_was_lost_before_its_stop_was_noticed_is_stopped(new_cluster: MakeCluster) -> None:
    """The next server learns of both at the same moment."""
    cluster = new_cluster().start()
    cluster.accept(job("lost", "sleep 600"))
    cluster.wait_state("lost", "RUNNING")
    cluster.kill()
    for pid in cluster.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.processes(), "the power cut")
    change_database(cluster, "UPDATE jobs SET execution_type = 'STOP'")
    cluster.start()
    status = cluster.wait_over("lost")
    assert (status["state"], status["appExitCode"], status["retries"]) == ("STOPPED", -210, 0)
    assert cluster.detail("lost")["taskRoles"]["main"]["taskStatuses"][0]["containerExitCode"] == -101


def test_unreadable_job_does_not_block_others(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    cluster.accept(job("odd", "sleep 600"))
    cluster.wait_state("odd", "RUNNING")
    cluster.kill()
    change_database(cluster, "UPDATE job_specs SET job = 'name: [', config = 'name: ['")
    cluster.start()
    assert cluster.run(job("other", "true"))["state"] == "SUCCEEDED"
    assert cluster.status("odd")["state"] == "RUNNING"
    assert f"Cannot read the stored job {cluster.user}~odd" in cluster.log.read_text()
    cluster.kill()
    readable = json.dumps(job("odd", "sleep 600"))
    change_database(cluster, "UPDATE job_specs SET job = ? WHERE job = 'name: ['", readable)
    cluster.start()


DAMAGE = [
    "UPDATE jobs SET vc = CAST(X'ff' AS TEXT) WHERE name = 'odd'",
    "UPDATE jobs SET submission_ms = 'x' WHERE name = 'odd'",
    "UPDATE job_specs SET config = CAST(X'ff' AS TEXT), job = CAST(X'ff' AS TEXT) WHERE job_id = 1",
    "UPDATE tasks SET node = CAST(X'ff' AS TEXT) WHERE job_id = 1",
    "UPDATE tasks SET memory_mb = 'x' WHERE job_id = 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", DAMAGE)
def test_damaged_row_of_a_job_does_not_block_others(new_cluster: MakeCluster, statement: str) -> None:
    cluster = new_cluster().start()
    cluster.accept(job("odd", "sleep 600"))
    cluster.wait_state("odd", "RUNNING")
    cluster.kill()
    copy = (cluster.home / "cluster.db").with_name("before.db")
    change_database(cluster, "PRAGMA user_version = 0")
    with closing(sqlite3.connect(f"{(cluster.home / 'cluster.db').as_uri()}?mode=ro", uri=True)) as conn:
        conn.execute("VACUUM INTO ?", (str(copy),))
    change_database(cluster, statement)
    cluster.start()
    assert cluster.run(job("other", "true"))["state"] == "SUCCEEDED"
    assert "leaving it unchanged" in cluster.log.read_text()
    # A request for it fails with a sentence, or works; it does not end the server.
    cluster.description = None
    reply = cluster.get(cluster.path("odd"))
    assert reply.status == 200 or reply.json()["message"], reply
    assert cluster.run(job("another", "true"))["state"] == "SUCCEEDED"
    cluster.kill()
    for suffix in ("-wal", "-shm", "-session"):
        (cluster.home / f"cluster.db{suffix}").unlink(missing_ok=True)
    copy.replace(cluster.home / "cluster.db")
    cluster.start()


# -- the disk -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.mark.slow
def test_full_disk_rejects_new_jobs_and_loses_none(small_disk: Path, tmp_path: Path) -> None:
    cluster = Cluster(small_disk / "home")
    cluster.options = (*cluster.options, "--grace", "1", "--cpus", "1")
    ran, go = tmp_path / "ran", tmp_path / "go"
    filler = small_disk / "filler"
    try:
        cluster.start()
        cluster.accept(
            job(
                "before",
                f"echo $PAI_JOB_NAME >> {ran}",
                f"until [ -e {go} ]; do sleep 0.02; done",
                "echo end",
            )
        )
        cluster.wait_state("before", "RUNNING")
        accepted = ["before", *(f"queued-{number}" for number in range(5))]
        for name in accepted[1:]:
            cluster.accept(job(name, f"echo $PAI_JOB_NAME >> {ran}"))
        fill(small_disk)
        rejected = 0
        for number in range(60):
            name = f"full-{number}"
            reply = cluster.submit(job(name, f"echo $PAI_JOB_NAME >> {ran}"), key=name)
            if reply.status == 202:
                accepted.append(name)
                continue
            rejected += 1
            assert reply.status in (503, 507), reply.text
            assert "full" in reply.json()["message"]
            assert "Traceback" not in reply.text
        assert rejected
        assert cluster.get("/api/v2/jobs?limit=1").status == 200, "reads still work"
        go.touch()
        busy = cpu_of(cluster)
        time.sleep(3)
        assert cpu_of(cluster) - busy < 2.0, "it does not spin while the disk is full"
        assert cluster.process is not None
        assert cluster.process.poll() is None
        filler.unlink()
        eventually(lambda: all_jobs_finished(cluster), "the end of all jobs")
        reply = cluster.submit(job("after", f"echo $PAI_JOB_NAME >> {ran}"))
        assert reply.status == 202
        assert cluster.wait_over("after")["state"] == "SUCCEEDED"
        for name in accepted:
            assert cluster.status(name)["state"] == "SUCCEEDED", cluster.status(name)
        counted = Counter(line.partition("~")[2] for line in ran.read_text().split())
        assert counted == Counter([*accepted, "after"])
    finally:
        filler.unlink(missing_ok=True)
        log = cluster.log.read_text() if cluster.log.exists() else ""
        cluster.close()
    assert len(log) < 200_000


def test_healthz_reports_a_full_disk_of_an_idle_cluster(small_disk: Path) -> None:
    """What refuses submissions is not healthy, also where the controller has nothing to write."""
    cluster = Cluster(small_disk / "home")
    filler = small_disk / "filler"
    try:
        cluster.start()
        assert cluster.get("/healthz", token=None).status == 200
        fill(small_disk)
        assert cluster.submit(job("refused", f"echo {'x' * 100_000}")).status == 503
        reply = cluster.get("/healthz", token=None)
        assert reply.status == 503 and "is full" in reply.text
        filler.unlink()
        assert cluster.get("/healthz", token=None).status == 200
        assert cluster.run(job("accepted", "true"))["state"] == "SUCCEEDED"
    finally:
        filler.unlink(missing_ok=True)
        cluster.close()


def test_stops_journaled_on_a_full_disk_are_counted(small_disk: Path) -> None:
    cluster = Cluster(small_disk / "home")
    filler = small_disk / "filler"
    try:
        cluster.start()
        cluster.accept(job("endless", "sleep 600"))
        cluster.wait_state("endless", "RUNNING")
        fill(small_disk)
        reply = cluster.stop("endless")
        assert (reply.status, reply.json()["code"]) == (503, "StopNotPersistedError")
        assert cluster.metric("paicluster_stops_pending_write") == 1
        filler.unlink()
        assert cluster.wait_over("endless")["state"] == "STOPPED"
        assert cluster.metric("paicluster_stops_pending_write") == 0
    finally:
        filler.unlink(missing_ok=True)
        cluster.close()


@pytest.mark.slow
def test_full_task_disk_delays_launches_until_space_is_free(small_disk: Path, tmp_path: Path) -> None:
    """The database has space, the task folders have none: no launch succeeds, and none is abandoned."""
    cluster = Cluster(tmp_path / "home")
    cluster.home.mkdir()
    (cluster.home / "tasks").symlink_to(small_disk)
    ran, filler = tmp_path / "ran", small_disk / "filler"
    try:
        cluster.start()
        assert cluster.run(job("before", "true"))["state"] == "SUCCEEDED"
        fill(small_disk)
        names = [f"waits-{number}" for number in range(10)]
        for name in names:
            cluster.accept(job(name, f"echo $PAI_JOB_NAME >> {ran}", "echo done", instances=2))
        busy = cpu_of(cluster)
        time.sleep(4)
        assert cpu_of(cluster) - busy < 2.0, "it does not spin"
        assert not ran.exists()
        assert cluster.get("/healthz", token=None).status == 200
        filler.unlink()
        for name in names:
            assert cluster.wait_over(name)["state"] == "SUCCEEDED"
            assert cluster.log_of(name) == b"done\n"
        assert Counter(ran.read_text().split()) == {f"{cluster.user}~{name}": 2 for name in names}
    finally:
        filler.unlink(missing_ok=True)
        log = cluster.log.read_text()
        cluster.close()
    assert len(log) < 100_000, log[-3000:]


@pytest.mark.slow
def test_stop_with_no_space_for_database_and_tasks_is_repeated(small_disk: Path, tmp_path: Path) -> None:
    """The stop is journaled, the task that never started cannot be marked: a warning, and later the stop."""
    with mounted(tmp_path / "tasks") as tasks:
        cluster = Cluster(small_disk / "home")
        cluster.home.mkdir()
        (cluster.home / "tasks").symlink_to(tasks)
        ran = tmp_path / "ran"
        fillers = [tasks / "filler", small_disk / "filler"]
        try:
            cluster.start()
            assert cluster.run(job("before", "true"))["state"] == "SUCCEEDED"
            fill(tasks)
            cluster.accept(job("never", f"touch {ran}"))
            eventually(lambda: "Cannot launch" in cluster.log.read_text(), "the failed launch")
            fill(small_disk)
            reply = cluster.stop("never")
            assert (reply.status, reply.json()["code"]) == (503, "StopNotPersistedError")
            eventually(lambda: "Cannot stop tasks" in cluster.log.read_text(), "the failed stop")
            for filler in fillers:
                filler.unlink()
            assert cluster.wait_over("never")["state"] == "STOPPED"
            assert not ran.exists()
            assert "Traceback" not in cluster.log.read_text()
        finally:
            for filler in fillers:
                filler.unlink(missing_ok=True)
            cluster.close()


@pytest.mark.slow
def test_healthz_reports_writes_blocked_by_a_foreign_lock(new_cluster: MakeCluster) -> None:
    cluster = new_cluster().start()
    with closing(sqlite3.connect(cluster.home / "cluster.db", isolation_level=None)) as other_program:
        other_program.execute("BEGIN IMMEDIATE")
        statuses: list[int] = []
        submitter = threading.Thread(
            target=lambda: statuses.append(cluster.submit(job("patient", "true")).status)
        )
        submitter.start()
        unhealthy = eventually(
            lambda: (reply := cluster.get("/healthz", token=None)).status == 503 and reply,
            "an unhealthy state",
            25,
        )
        assert "waiting" in unhealthy.text
        assert cluster.get("/api/v2/jobs").status == 200, "reads still work"
        other_program.execute("ROLLBACK")
    submitter.join(90)
    assert statuses == [202]
    assert cluster.get("/healthz", token=None).status == 200
    assert cluster.wait_over("patient")["state"] == "SUCCEEDED"


def cpu_of(cluster: Cluster) -> float:
    assert cluster.process is not None
    fields = Path(f"/proc/{cluster.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_full_disk_at_the_start_is_reported_in_a_sentence(small_disk: Path) -> None:
    fill(small_disk)
    for home in (small_disk, small_disk / "home"):
        command = [*Cluster(home).program, "serve", "--home", str(home), "--port", "0", "--embedded"]
        ended = subprocess.run(command, capture_output=True, check=False, timeout=90)
        output = (ended.stdout + ended.stderr).decode()
        assert ended.returncode not in (0, None)
        assert "Traceback" not in output, output
        assert len(output.strip().splitlines()) <= 2, output
        assert "full" in output or "No space left" in output
