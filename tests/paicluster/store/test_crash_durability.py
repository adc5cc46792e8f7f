"""Acknowledged writes survive a SIGKILL of the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paicluster.store import Store
from paicluster.store.jobs import get_job, job_spec

PROGRAM = """
import asyncio, sys
from pathlib import Path
from paicluster.store import Store
from paicluster.store.jobs import INSERT_JOB, NewJob, update_job

store = Store.open(Path(sys.argv[1]))
run = sys.argv[2]

async def client(k):
    for n in range(100000):
        name = f"{run}_{k}_{n}"
        new = NewJob("alice", name, "default", name, "{}", 1700000000000)
        job = await store.write_batched(INSERT_JOB, new)
        sys.stdout.write(f"inserted {name} {job.id}\\n")
        await store.write(lambda conn: update_job(conn, job.id, sub_state="AttemptRunning"))
        sys.stdout.write(f"running {name} {job.id}\\n")
        sys.stdout.flush()

async def main():
    await asyncio.gather(*(client(k) for k in range(16)))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "rounds", [pytest.param(3, id="few"), pytest.param(15, id="many", marks=pytest.mark.slow)]
)
def test_every_acknowledged_write_survives_kill_9(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "cluster.db"
    Store.open(path).close()
    dice = random.Random(rounds)
    acknowledged: dict[str, tuple[int, str]] = {}
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, path, f"run{number}"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(dice.randrange(50, 600)):
            _note(process.stdout.readline(), acknowledged)
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout.read().splitlines(keepends=True):
            _note(line, acknowledged)
        process.wait()
        _check(path, acknowledged)


def _note(line: str, acknowledged: dict[str, tuple[int, str]]) -> None:
    if line.endswith("\n"):  # a truncated line is no acknowledgement
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
