"""Acknowledged writes survive a SIGKILL of the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.store import Store
from paicluster.store.jobs import get_job, job_spec

# Starts a process for each line, with the path of a database and a name. The process prints its number, then
# a line for each acknowledgement; a NUL follows its end. It is forked, because importing the store takes
# longer than the rest.
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store
from paicluster.store.jobs import INSERT_JOB, NewJob, update_job

async def client(store, run, k):
    for n in range(100000):
        name = f"{run}_{k}_{n}"
        new = NewJob("alice", name, "default", name, "{}", 1700000000000)
        job = await store.write_batched(INSERT_JOB, new)
        sys.stdout.write(f"inserted {name} {job.id}\\n")
        await store.write(lambda conn: update_job(conn, job.id, sub_state="AttemptRunning"))
        sys.stdout.write(f"running {name} {job.id}\\n")
        sys.stdout.flush()

async def main(path, run):
    store = Store.open(Path(path), render_summary)
    print(os.getpid(), flush=True)
    await asyncio.gather(*(client(store, run, k) for k in range(16)))

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        asyncio.run(main(*line.split()))
    os.waitpid(pid, 0)
    print("\\0", flush=True)
"""


@pytest.fixture(scope="module", name="writers")
def writers_fixture() -> Iterator[subprocess.Popen[str]]:
    """The parent of the processes that are killed."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        yield parent


@pytest.mark.parametrize(
    "rounds", [pytest.param(3, id="few"), pytest.param(15, id="many", marks=pytest.mark.slow)]
)
def test_every_acknowledged_write_survives_kill_9(
    tmp_path: Path, writers: subprocess.Popen[str], rounds: int
) -> None:
    path = tmp_path / "cluster.db"
    Store.open(path).close()
    dice = random.Random(rounds)
    acknowledged: dict[str, tuple[int, str]] = {}
    assert writers.stdin is not None and writers.stdout is not None
    for number in range(rounds):
        writers.stdin.write(f"{path} run{number}\n")
        writers.stdin.flush()
        pid = int(writers.stdout.readline())
        for _ in range(dice.randrange(50, 600)):
            _note(writers.stdout.readline(), acknowledged)
        os.kill(pid, signal.SIGKILL)
        # The last line may be a part of one, which is no acknowledgement.
        while "\0" not in (line := writers.stdout.readline()):
            _note(line, acknowledged)
        _check(path, acknowledged)


def _note(line: str, acknowledged: dict[str, tuple[int, str]]) -> None:
    word, name, job_id = line.split()
    acknowledged[name] = (int(job_id), word)


def _check(path: Path, acknowledged: dict[str, tuple[int, str]]) -> None:
    store = Store.open(path)
    states: set[str] = set()

    def check(conn: object) -> None:
        for name, (job_id, word) in acknowledged.items():
            job = get_job(conn, f"alice~{name}")  # type: ignore[arg-type]
            assert job is not None, f"{name} was acknowledged and is gone"
            assert job.id == job_id
            spec = job_spec(conn, job_id)  # type: ignore[arg-type]
            assert spec is not None
            assert spec.config == name
            if word == "running":
                assert job.state == "RUNNING"
            states.add(job.state)

    store.read_sync(check)
    sound = store.read_sync(lambda conn: conn.exec_driver_sql("PRAGMA integrity_check").scalar())
    store.close()
    assert sound == "ok"
    assert "RUNNING" in states
