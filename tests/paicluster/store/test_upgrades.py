"""Databases that earlier versions wrote are upgraded, also when the upgrade is killed.

`tests/data/databases` has one for each revision of the schema, with jobs in every state, written by a server
of a commit that had it (`support.database_of_this_version`). No commit had 0012 as its newest one.
"""

from __future__ import annotations

import gzip
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs, schema_version
from paicluster.store.integrity import problems_of
from paicluster.store.row_check import row_problems

DATABASES = Path(__file__).parents[2] / "data/databases"
REVISIONS = [file.name.removesuffix(".db.gz") for file in sorted(DATABASES.iterdir())]
KILLS = 5
JOBS = {
    "succeeded": "Completed",
    "failed": "Completed",
    "retried": "Completed",
    "gang": "Completed",
    "stopped": "Completed",
    "tagged": "Completed",
    "running": "AttemptRunning",
    "waiting": "AttemptCreationPending",
}

# For each line, with the path of a database and a number, a forked process opens the database and is killed
# before the SQL statement with this number. It prints the number of statements, if it came so far, and how
# the process ended.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store
from paicluster.store.migrations import upgrade

def run(path, kill_at):
    count = 0
    def before(*args):
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    event.listen(Engine, "before_cursor_execute", before)
    Store.open(Path(path), render_summary).close()
    print(count, flush=True)

for line in sys.stdin:
    path, kill_at = line.split()
    pid = os.fork()
    if pid == 0:
        run(path, int(kill_at))
        os._exit(0)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.fixture(scope="module", name="open_and_kill")
def open_and_kill_fixture() -> Iterator[Callable[[Path, int], list[int]]]:
    """Runs the program for one line; returns the numbers that it prints."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None

        def run(path: Path, kill_at: int) -> list[int]:
            assert parent.stdin is not None and parent.stdout is not None
            print(path, kill_at, file=parent.stdin, flush=True)
            printed = [int(parent.stdout.readline())]
            if not kill_at:
                printed.append(int(parent.stdout.readline()))
            return printed

        yield run
        parent.stdin.close()


def unpack(revision: str, path: Path) -> Path:
    path.write_bytes(gzip.decompress((DATABASES / f"{revision}.db.gz").read_bytes()))
    return path


def states_and_tags(conn: Connection) -> tuple[dict[str, str], list[str]]:
    rows = {name: jobs.get_job(conn, f"root~{name}") for name in JOBS}
    states = {name: row.sub_state for name, row in rows.items() if row is not None}
    tagged = rows["tagged"]
    return states, [] if tagged is None else jobs.tags_of(conn, tagged.id)


def test_there_is_a_database_for_each_revision() -> None:
    assert [revision for revision in schema_version.REVISIONS if revision != "0012"] == REVISIONS


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_that_is_killed_loses_nothing(
    tmp_path: Path, revision: str, open_and_kill: Callable[[Path, int], list[int]]
) -> None:
    statements, status = open_and_kill(unpack(revision, tmp_path / "whole.db"), 0)
    assert status == 0
    database = unpack(revision, tmp_path / "cluster.db")
    dice = random.Random(revision)
    for kill_at in sorted(dice.sample(range(1, statements), min(KILLS, statements - 1)), reverse=True):
        [status] = open_and_kill(database, kill_at)
        assert status in (signal.SIGKILL, 0), "where the upgrade was complete there are fewer statements"
    store = Store.open(database, render_summary)
    try:
        states, tags = store.read_sync(states_and_tags)
    finally:
        store.close()
    assert states == JOBS
    assert tags == ["old", "wave-1"]
    assert problems_of(database) == []
    assert row_problems(database, render_summary) == []
