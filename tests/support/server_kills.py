"""A server that is killed again and again, under load and right after it accepted a job."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.server_fixture import Cluster, eventually, job

_JOBS_PER_KILL = 6

SERVER_DOWN = (OSError, http.client.HTTPException, json.JSONDecodeError)


def retry_until_answered(call: Callable[[], Any], stop: Callable[[], bool] = lambda: False) -> Any:
    """Call until the server, which is killed and restarted all the time, has answered."""
    while not stop():
        with contextlib.suppress(*SERVER_DOWN):
            return call()
        time.sleep(0.02)
    return None


def all_jobs_finished(cluster: Cluster) -> bool:
    unfinished = cluster.get(
        "/api/v2/jobs?state=WAITING,RUNNING,STOPPING,UNKNOWN&limit=0&withTotalCount=true"
    )
    return bool(unfinished.json()["totalCount"] == 0)


class Load:
    """Submitters that retry until they are answered, and the accepted jobs.

    They submit as many jobs as `allow` permits: a busy machine takes longer for a kill, not more jobs.
    """

    def __init__(self, cluster: Cluster, ran: Path):
        self.cluster = cluster
        self.ran = ran
        self.done = threading.Event()
        self._numbers = itertools.count()
        self.accepted: dict[str, int] = {}
        self.rejected: list[str] = []
        self._lock = threading.Lock()
        self._allowed = threading.Semaphore(0)
        self.threads = [threading.Thread(target=self._submit_all, daemon=True) for _ in range(4)]

    def allow(self, jobs: int) -> None:
        self._allowed.release(jobs)

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
        while not self.done.is_set():
            if not self._allowed.acquire(timeout=0.1):
                continue
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


def kill_under_load(cluster: Cluster, ran: Path, kills: int) -> None:
    """Kill a running server so many times while jobs are submitted, then check all of them."""
    seed = random.randrange(10**6)
    print("seed", seed)
    dice = random.Random(seed)
    load = Load(cluster, ran)
    for thread in load.threads:
        thread.start()
    for _ in range(kills):
        load.allow(_JOBS_PER_KILL)
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
        cluster.start()
    submitted = kills * _JOBS_PER_KILL
    eventually(lambda: len(load.accepted) + len(load.rejected) == submitted, "the last submission")
    load.done.set()
    for thread in load.threads:
        thread.join(60)
        assert not thread.is_alive()
    eventually(lambda: all_jobs_finished(cluster), "the end of all jobs", 180)
    check_all_jobs(cluster, load)
    assert "Traceback" not in cluster.log.read_text()


def kill_after_acceptance(cluster: Cluster, ran: Path, count: int) -> None:
    """Kill a running server at so many points between the 202 and the launch: each job runs once."""
    for number in range(count):
        cluster.accept(job(f"accepted-{number}", f"echo $PAI_JOB_NAME >> {ran}", "echo done"))
        time.sleep(number * 0.036 / count)
        cluster.kill()
        cluster.start()
    eventually(lambda: all_jobs_finished(cluster), "the end of all jobs")
    assert Counter(ran.read_text().split()) == {f"{cluster.user}~accepted-{n}": 1 for n in range(count)}
    for number in range(count):
        status = cluster.status(f"accepted-{number}")
        assert (status["state"], status["retries"]) == ("SUCCEEDED", 0)
        assert cluster.log_of(f"accepted-{number}") == b"done\n"
