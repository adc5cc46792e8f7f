"""Writes the database of this version for the tests of upgrades:

    PYTHONPATH=tests .venv/bin/python -m support.database_of_this_version

A server of this checkout gets jobs in every state. Its database goes to `tests/data/databases`. Run
it in the last commit before a new revision.
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from paicluster.store.schema_version import HEAD
from support.cli_user import CliUser, until

FOLDER = Path(__file__).parents[1] / "data/databases"
STATES = {
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "retried": "FAILED",
    "gang": "SUCCEEDED",
    "tagged": "SUCCEEDED",
    "running": "RUNNING",
    "stopped": "RUNNING",
    "waiting": "WAITING",
}


def make(folder: Path, target: Path) -> None:
    user = CliUser(folder)
    user.start_cluster()
    try:
        _submit(user)
        until(lambda: {name: user.state(name) for name in STATES} == STATES)
        user.pai("tag-job", "succeeded", "kept")
        user.pai("stop-job", "stopped")
        until(lambda: user.state("stopped") == "STOPPED")
        user.pai("stop-cluster")  # the running job goes on
        copy = folder / "copy.db"
        with closing(sqlite3.connect(user.cluster_home / "cluster.db")) as conn:
            conn.execute("VACUUM INTO ?", (str(copy),))
        target.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))
    finally:
        user.stop_cluster()


def _submit(user: CliUser) -> None:
    def submit(name: str, *words: str) -> None:
        user.pai("sub", "--no-sources", "--mem", "32m", "-j", name, *words)

    submit("succeeded", "true")
    submit("failed", "exit 3")
    submit("retried", "--retry", "1", "exit 1")
    submit("gang", "--instances", "2", "echo hello")
    submit("tagged", "--tag", "wave-1", "--tag", "old", "true")
    until(lambda: user.state("gang") == STATES["gang"])  # which takes two processors
    submit("running", "sleep 900")
    submit("stopped", "sleep 900")
    submit("waiting", "--after", "running", "true")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER / f"{HEAD}.db.gz")
        make(Path(name), made)
    print(made)
