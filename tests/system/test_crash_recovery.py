"""Crash recovery: `kill -9`, lost supervisors, a full disk, a reboot; no job is lost and none runs twice."""

from __future__ import annotations

import contextlib
import http.client
import itertools
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
from support.server_fixture import FINISHED_STATES, Cluster, eventually, job
from support.small_disk import fill, mounted

MakeCluster = Callable[..., Cluster]

SERVER_DOWN = (OSError, http.client.HTTPException, json.JSONDecodeError)


def retry_until_answered(call: Callable[[], Any], stop: Callable[[], bool] = lambda: False) -> Any:
    """Call until the server, which is killed and restarted all the time, has answered."""
    while not stop():
        with contextlib.suppress(*SERVER_DOWN):
            return call()
        time.sleep(0.02)
    return None


def folder_of(cluster: Cluster, name: str) -> Path:
    uid = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    return cluster.home / "tasks" / uid[:2] / uid


def all_jobs_finished(cluster: Cluster) -> bool:
    unfinished = cluster.get(
        "/api/v2/jobs?state=WAITING,RUNNING,STOPPING,UNKNOWN&limit=0&withTotalCount=true"
    )
    return bool(unfinished.json()["totalCount"] == 0)


# -- kill -9 of the server ------------------------------------------------------------------------


class Load:
    """Submitters that retry until they are answered, and the accepted jobs."""

    def __init__(self, cluster: Cluster, ran: Path):
        self.cluster = cluster
        self.ran = ran
        self.done = threading.Event()
        self._numbers = itertools.count()
        self.accepted: dict[str, int] = {}
        self.rejected: list[str] = []
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._submit_all, daemon=True) for _ in range(4)]

    def job(self, number: int) -> dict[str, Any]:
        """A third fails, some are retried; each records its attempt and prints known bytes."""
        code = 3 if number % 3 == 1 else 0
        retries = 1 if number % 6 == 1 else 0
        script = [
            # One write of one line: lines of different tasks never mix.
            f"echo $PAI_JOB_NAME $FC_FRAMEWORK_ATTEMPT_ID $PAI_CONTAINER_ID >> {self.ran}",
            f"for i in $(seq {20 + number % 50}); do echo job {number} line $i; done",
            f"sleep 0.{number % 5}",
            f"echo job {number} ends",
            f"exit {code}",
        ]
        return job(f"load-{number}", *script, jobRetryCount=retries)

    def log(self, number: int) -> bytes:
        lines = [f"job {number} line {i}\n" for i in range(1, 21 + number % 50)]
        return ("".join(lines) + f"job {number} ends\n").encode()

    def _submit_all(self) -> None:
        while not self.done.wait(0.03):
            number = next(self._numbers)
            spec = self.job(number)
            reply = retry_until_answered(
                lambda spec=spec, number=number: self.cluster.submit(spec, key=f"key-{number}")
            )
            with self._lock:
                if reply.status == 202:
                    self.accepted[spec["name"]] = number
                else:
                    self.rejected.append(f"{spec['name']}: {reply.status} {reply.text}")


def check_all_jobs(cluster: Cluster, load: Load) -> None:
    """No job lost or run twice, every exit code right, every log complete."""
    assert load.rejected == []
    listed = cluster.get("/api/v2/jobs?limit=50000").json()
    assert Counter(one["name"] for one in listed) == Counter(list(load.accepted))
    ran: dict[str, list[tuple[int, str]]] = {}
    for line in load.ran.read_text().splitlines():
        framework, attempt, uid = line.split()
        ran.setdefault(framework.partition("~")[2], []).append((int(attempt), uid))
    condemned = []
    for name, number in load.accepted.items():
        status = cluster.status(name)
        if any(event["reason"] == "ServerDied" for event in cluster.events(name)):
            # The server was killed twice in a row while it worked on this job: nothing tells that from a job
            # that kills the server.
            assert status["state"] == "FAILED", name
            condemned.append(name)
            continue
        runs = ran[name]
        attempts = 2 if number % 6 == 1 else 1
        assert [attempt for attempt, _ in runs] == list(range(attempts)), f"{name} ran {runs}"
        assert len({uid for _, uid in runs}) == attempts
        assert status["retryDetails"]["platform"] == 0, (name, cluster.events(name))
        assert status["retries"] == attempts - 1
        expected = ("FAILED", 255) if number % 3 == 1 else ("SUCCEEDED", 0)
        assert (status["state"], status["appExitCode"]) == expected, name
        if expected[0] == "FAILED":
            assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 3
        for attempt in range(attempts):
            assert cluster.log_of(name, **{"from": f"{attempt}.0:0"}).startswith(load.log(number)), name
        assert cluster.log_of(name) == load.log(number), name
    assert len(condemned) <= 2, condemned


@pytest.mark.slow
def test_dozens_of_server_kills_under_load(new_cluster: MakeCluster, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    cluster = new_cluster().start()
    load = Load(cluster, tmp_path / "ran")
    for thread in load.threads:
        thread.start()
    kills = 0
    while kills < 40:
        # At any point: during the start, right after it, in the middle of the work.
        time.sleep(dice.choice((0.0, 0.02, 0.1, 0.3, 0.6)) * dice.random())
        starting = dice.random() < 0.3
        if starting:
            cluster.kill()
            cluster.spawn()
            time.sleep(dice.random() * 0.8)
        if dice.random() < 0.15:
            if starting:
                cluster.wait_for_signal_handlers()
            assert cluster.terminate() == 0
        else:
            cluster.kill()
        kills += 1
        cluster.start()
    load.done.set()
    for thread in load.threads:
        thread.join(60)
        assert not thread.is_alive()
    eventually(lambda: all_jobs_finished(cluster), "the end of all jobs", 180)
    print(len(load.accepted), "jobs,", kills, "kills")
    assert len(load.accepted) > 100
    check_all_jobs(cluster, load)
    assert "Traceback" not in cluster.log.read_text()


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
    """At any point between the 202 and the launch: the job runs once."""
    cluster = new_cluster().start()
    ran = tmp_path / "ran"
    for number in range(25):
        cluster.accept(job(f"accepted-{number}", f"echo $PAI_JOB_NAME >> {ran}", "echo done"))
        time.sleep(number * 0.0015)
        cluster.kill()
        cluster.start()
    eventually(lambda: all_jobs_finished(cluster), "the end of all jobs")
    assert Counter(ran.read_text().split()) == {f"{cluster.user}~accepted-{n}": 1 for n in range(25)}
    for number in range(25):
        status = cluster.status(f"accepted-{number}")
        assert (status["state"], status["retries"]) == ("SUCCEEDED", 0)
        assert cluster.log_of(f"accepted-{number}") == b"done\n"


@pytest.mark.slow
def test_jobs_that_end_while_the_server_is_down(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Between the exit and its recording: the supervisor's record is found later."""
    cluster = new_cluster().start()
    for turn in range(6):
        names = [f"ends-{turn}-{number}" for number in range(8)]
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
    for number in range(10):
        cluster.accept(job(f"stopped-{number}", "sleep 600", instances=2))
        if number % 2:
            cluster.wait_state(f"stopped-{number}", "RUNNING")
        assert cluster.stop(f"stopped-{number}").status == 202
        time.sleep(number * 0.002)
        cluster.kill()
        cluster.start()
    for number in range(10):
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
        time.sleep(0.15)
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
