"""Every row is read by `check-store`: what SQLite itself does not notice."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.cli import main
from paicluster.config.sections import BackupSettings
from paicluster.server.backup_schedule import BackupSchedule
from paicluster.server.store_check import problems_of_copy
from paicluster.store.backups import BackupFolder
from paicluster.store.integrity import problems_of
from paicluster.store.row_check import row_problems
from paicluster.store.tables import metadata
from paiprotocol.errors import StoreError
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, job

PAGE = 4096


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a stopped cluster with jobs in every state."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "home")
    try:
        prepare_database(cluster.home, [f"user{number}" for number in range(5)])
        cluster.start()
        for number in range(4):
            cluster.run(job(f"good{number}", "true"))
        cluster.run(job("bad", "exit 3", instances=2))
        cluster.accept(job("waits", "true", gpu=1000))
        cluster.accept(job("long", "sleep 600"))
        cluster.wait_state("long", "RUNNING")
        assert cluster.ask("PUT", cluster.path("good0", "/tag"), {"value": "kept"}).status == 200
        assert cluster.terminate() == 0
        kept = cluster.home.with_name("kept")
        kept.mkdir()
        for name in ("cluster.db", "cluster.db-session"):
            shutil.copy(cluster.home / name, kept)
        cluster.start()
        cluster.stop("long")
        cluster.wait_over("long")
    finally:
        cluster.close()
    return kept


@pytest.fixture
def home(closed: Path, tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    for name in ("cluster.db", "cluster.db-session"):
        shutil.copy(closed / name, tmp_path / "home")
    return tmp_path / "home"


def found_in(home: Path) -> list[str]:
    return [str(problem) for problem in row_problems(home / "cluster.db", render_summary)]


def change(home: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "cluster.db")) as conn, conn:
        assert conn.execute(statement).rowcount == 1


def paicluster(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


def test_database_of_a_server_is_sound(home: Path) -> None:
    assert found_in(home) == []


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE jobs SET state = 'FAILED' WHERE name = 'good1'", "does not follow from Completed"),
        ("UPDATE jobs SET sub_state = 'Complated' WHERE name = 'good1'", "its state is unknown"),
        ("UPDATE jobs SET username = 'mallory' WHERE name = 'good1'", "not that of its user"),
        ("UPDATE jobs SET submission_ms = -1 WHERE name = 'good1'", "no possible time"),
        (
            "UPDATE jobs SET submission_ms = submission_ms + 1 WHERE name = 'good1'",
            "its entry in lists differs",
        ),
        ("UPDATE jobs SET summary = '{' WHERE name = 'good1'", "summary is not JSON"),
        ("UPDATE jobs SET vc = CAST(X'ff' AS TEXT) WHERE name = 'good1'", "vc is not a text"),
        ("UPDATE jobs SET retries = 'x' WHERE name = 'good1'", "retries is not an integer"),
        ("UPDATE job_specs SET job = '', config = '{}' WHERE job_id = 2", "it cannot be read"),
        ("DELETE FROM job_specs WHERE job_id = 2", "its specification is missing"),
        ("UPDATE attempts SET attempt = 7 WHERE job_id = 2", "it is of attempt 7"),
        ("UPDATE tasks SET completed_ms = NULL WHERE job_id = 2", "has no time of its end"),
        ("UPDATE tasks SET ports = '[' WHERE job_id = 2", "ports is not JSON"),
    ],
)
def test_changed_value_names_its_job(home: Path, statement: str, reason: str) -> None:
    change(home, statement)
    first, *_ = found_in(home)
    assert reason in first and "good1" in first, first


def test_command_names_the_jobs_and_sets_them_aside(home: Path) -> None:
    change(home, "UPDATE jobs SET state = 'FAILED' WHERE name = 'good1'")
    change(home, "UPDATE tasks SET uid = CAST(X'ff00' AS TEXT) WHERE job_id = 3")
    status, out, err = paicluster("check-store", "--home", str(home))
    assert status == 1 and "good1" in out and "good2" in out
    assert "paicluster check-store --repair" in err
    status, out, err = paicluster("check-store", "--home", str(home), "--repair")
    assert (status, err) == (0, ""), (out, err)
    (aside,) = home.glob("set-aside-*.jsonl")
    assert "2 jobs" in out and str(aside) in out
    rows = [json.loads(line) for line in aside.read_text().splitlines()]
    assert {row["row"]["name"] for row in rows if row["table"] == "jobs"} == {"good1", "good2"}
    assert aside.stat().st_mode & 0o777 == 0o600
    assert paicluster("check-store", "--home", str(home))[0] == 0
    with contextlib.closing(sqlite3.connect(home / "cluster.db")) as conn:
        names = {name for (name,) in conn.execute("SELECT name FROM jobs")}
    assert names == {"good0", "good3", "bad", "waits", "long"}


def test_repair_leaves_what_is_of_no_job(home: Path) -> None:
    change(home, "UPDATE users SET extension = '{' WHERE username = 'user1'")
    status, out, err = paicluster("check-store", "--home", str(home), "--repair")
    assert status == 1 and "users" in out and "restore-store" in err
    assert list(home.glob("set-aside-*")) == []


def test_share_of_random_overwrites_that_is_noticed(home: Path) -> None:
    """Not all are: a letter in a name or a text, which any value may have, or a time that is possible."""
    by_pages, by_rows, changed = measure(home, 120)
    assert changed > 8
    assert by_rows > by_pages and by_rows >= changed * 0.6, (by_pages, by_rows, changed)


def measure(home: Path, trials: int, length: int = 16) -> tuple[int, int, int]:
    """Of random overwrites that change what is stored: noticed by SQLite, noticed in all, and how many."""
    database, whole = home / "cluster.db", (home / "cluster.db").read_bytes()
    chance = random.Random(4)
    content = content_of(database)
    by_pages = by_rows = changed = 0
    for _ in range(trials):
        at = chance.randrange(PAGE, len(whole) - length)
        database.write_bytes(whole[:at] + chance.randbytes(length) + whole[at + length :])
        found = bool(problems_of(database))
        if found or content_of(database) != content:
            changed += 1
            by_pages += found
            by_rows += found or rows_are_damaged(database)
    return by_pages, by_rows, changed


def test_backup_with_a_damaged_row_replaces_no_good_one(home: Path, tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path / "backups")
    good = folder.take(home / "cluster.db", problems_of_copy)
    change(home, "UPDATE jobs SET state = 'FAILED' WHERE name = 'good1'")
    with pytest.raises(StoreError, match="good1"):
        folder.take(home / "cluster.db", problems_of_copy)
    assert [backup.path for backup in folder.backups()] == [good.path]
    assert [path.name for path in folder.path.iterdir()] == [good.path.name]


@pytest.mark.parametrize("is_idle", [True, False])
def test_database_is_checked_once_a_week_while_no_job_runs(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_idle: bool
) -> None:
    caplog.set_level(logging.INFO, "paicluster.backups")
    if is_idle:
        change_some(home, "DELETE FROM jobs WHERE sub_state != 'Completed'")
    change(home, "UPDATE jobs SET state = 'FAILED' WHERE name = 'good1'")
    schedule = BackupSchedule(home / "cluster.db", tmp_path / "backups", BackupSettings())
    schedule._check_if_due()
    assert caplog.messages == []  # a new cluster is checked after a week
    long_ago = time.time() - 8 * 86400
    os.utime(tmp_path / "backups/last-check", (long_ago, long_ago))
    for _ in range(2):
        schedule._check_if_due()
    assert sum("good1" in message for message in caplog.messages[:1]) == is_idle
    assert sum("Stop the server" in message for message in caplog.messages) == is_idle


def change_some(home: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "cluster.db")) as conn, conn:
        conn.execute("PRAGMA foreign_keys=ON")
        conn.execute(statement)


def content_of(database: Path) -> object:
    with contextlib.closing(sqlite3.connect(database)) as conn:
        conn.text_factory = bytes
        try:
            return [conn.execute(f'SELECT * FROM "{name}"').fetchall() for name in metadata.tables]
        except (sqlite3.Error, UnicodeDecodeError):
            return None


def rows_are_damaged(database: Path) -> bool:
    try:
        return bool(row_problems(database, render_summary))
    except StoreError:
        return True
