"""Damage of the database's files is found: the files are really damaged, the processes really killed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs
from paicluster.store.integrity import ShutdownMarker, problems_of
from paicluster.store.jobs import NewJob
from paicluster.store.users import add_user, list_users
from paiprotocol.errors import StoreError

PAGE = 4096
# Header and frames of a write-ahead log.
LOG_HEADER, FRAME_HEADER = 32, 24

# For each database that it reads the path of: a process writes users in several transactions, and is killed
# with all of them in the log. They are forked, because importing the store takes longer than the rest.
WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from paicluster.store import Store
from paicluster.store.users import add_user

def write_and_die(path):
    store = Store.open(path)
    for first in range(0, 40, 5):
        def add(conn):
            for n in range(first, first + 5):
                add_user(conn, f"late{n}", "x" * 3000, created_ms=n)
        store.write_sync(add)
    os.kill(os.getpid(), signal.SIGKILL)

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        write_and_die(Path(line[:-1]))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with users, closed."""
    file = tmp_path / "cluster.db"
    file.touch(mode=0o600)
    file.write_bytes(database_with_users())
    Store.open(file).close()  # its marker names this file
    return file


@cache
def database_with_users() -> bytes:
    def add(conn: object) -> None:
        for n in range(500):
            add_user(conn, f"user{n}", "x" * 200, created_ms=n)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.db"
        store = Store.open(file)
        store.write_sync(add)
        store.close()
        assert not log_of(file).exists(), "the database is in one file"
        return file.read_bytes()


@cache
def writers() -> subprocess.Popen[str]:
    """The parent of the processes that are killed; it ends with this one."""
    command = [sys.executable, "-c", WRITE_AND_DIE]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def die_while_writing(path: Path) -> None:
    parent = writers()
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write(f"{path}\n")
    parent.stdin.flush()
    assert int(parent.stdout.readline()) == -signal.SIGKILL
    assert log_of(path).stat().st_size > 40 * PAGE


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def index_of(path: Path) -> Path:
    return path.with_name(path.name + "-shm")


def damage(path: Path, page: int) -> None:
    """Overwrite one page with what a bad disk may return."""
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(os.urandom(PAGE))


def users_in(path: Path) -> int:
    store = Store.open(path)
    try:
        return len(store.read_sync(list_users))
    finally:
        store.close()


def open_error(path: Path) -> StoreError:
    with pytest.raises(StoreError) as raised:
        Store.open(path).close()
    assert "\n" not in raised.value.message
    assert raised.value.hint
    return raised.value


def test_every_write_is_there_after_a_kill(path: Path) -> None:
    die_while_writing(path)
    assert users_in(path) == 540


def test_database_is_checked_after_a_kill_and_not_after_a_clean_shutdown(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "paicluster.store")
    users_in(path)
    assert caplog.messages == []
    die_while_writing(path)
    users_in(path)
    assert any(message.startswith("checked the database in") for message in caplog.messages)
    caplog.clear()
    users_in(path)
    assert caplog.messages == []


@pytest.mark.parametrize("page", range(3, 30, 3))
def test_damaged_page_is_found_at_the_start_after_a_kill(path: Path, page: int) -> None:
    die_while_writing(path)
    # So that no good copy of the page is in the log.
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = conn.execute("PRAGMA quick_check(1)").fetchone()
        assert before == ("ok",)
        # Another connection: else closing this one would remove the log, as a clean shutdown does.
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN")
            damage(path, page)
            for _ in range(2):
                assert "is damaged" in open_error(path).message


def test_damaged_page_is_found_by_the_full_check(path: Path) -> None:
    assert problems_of(path) == []
    found = 0
    for page in range(2, path.stat().st_size // PAGE):
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes())
        damage(copy, page)
        found += bool(problems_of(copy))
        copy.unlink()
    # A page that is on the list of free pages holds nothing.
    assert found >= path.stat().st_size // PAGE - 4


@pytest.mark.parametrize("frame", [0, 7, 20, -1])
def test_damaged_log_is_found(path: Path, frame: int) -> None:
    die_while_writing(path)
    log = log_of(path)
    content = bytearray(log.read_bytes())
    frames = (len(content) - LOG_HEADER) // (FRAME_HEADER + PAGE)
    at = LOG_HEADER + (frame % frames) * (FRAME_HEADER + PAGE) + FRAME_HEADER + 100
    content[at] ^= 0x10
    log.write_bytes(content)
    error = open_error(path)
    assert "write-ahead log" in error.message
    assert "is damaged" in error.message
    # The next start must not forget it: SQLite itself does.
    assert open_error(path).message == error.message


def test_damaged_header_of_the_log_is_found(path: Path) -> None:
    die_while_writing(path)
    content = bytearray(log_of(path).read_bytes())
    content[:LOG_HEADER] = bytes(LOG_HEADER)
    log_of(path).write_bytes(content)
    assert "write-ahead log" in open_error(path).message


def test_truncated_log_is_found(path: Path) -> None:
    die_while_writing(path)
    os.truncate(log_of(path), log_of(path).stat().st_size // 2)
    assert "write-ahead log" in open_error(path).message
    os.truncate(log_of(path), 0)
    assert "write-ahead log" in open_error(path).message


@pytest.mark.parametrize("with_index", [True, False])
def test_lost_log_is_noticed_and_can_be_put_back(path: Path, with_index: bool) -> None:
    die_while_writing(path)
    kept = {file: file.read_bytes() for file in (log_of(path), *([index_of(path)] if with_index else []))}
    for file in kept:
        file.unlink()
    for _ in range(2):
        assert "is missing, though the last server did not shut down" in open_error(path).message
    for file, content in kept.items():
        file.write_bytes(content)
    assert users_in(path) == 540


def test_lost_log_is_no_loss_when_all_of_it_is_in_the_database(path: Path) -> None:
    die_while_writing(path)
    with contextlib.closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        index = index_of(path).read_bytes()
    index_of(path).write_bytes(index)
    assert not log_of(path).exists()
    assert users_in(path) == 540


def test_replaced_database_is_not_taken_for_one_with_a_lost_log(path: Path, tmp_path: Path) -> None:
    backup = path.read_bytes()
    die_while_writing(path)
    for file in (log_of(path), index_of(path)):
        file.unlink()
    # As an editor does. The old file exists until then: a deleted one may give its inode to the copy.
    (tmp_path / "copy").write_bytes(backup)
    (tmp_path / "copy").rename(path)
    assert users_in(path) == 500


def test_log_that_another_program_has_moved_into_the_database_is_not_called_lost(path: Path) -> None:
    die_while_writing(path)
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("UPDATE users SET email = 'x'")
        conn.commit()
    assert not log_of(path).exists(), "SQLite removes it when the last program closes the database"
    # Deleted by hand it would look the same: the administrator knows which it was.
    assert "unless another program has opened the database since" in open_error(path).message
    ShutdownMarker(path).accept()
    assert users_in(path) == 540


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE jobs",
        "ALTER TABLE users DROP COLUMN admin",
        "ALTER TABLE tasks RENAME TO other",
        "DELETE FROM alembic_version",
        "DROP TABLE alembic_version",
    ],
)
def test_damaged_schema_is_reported_in_one_sentence(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.executescript("PRAGMA foreign_keys=OFF;" + statement)
    with pytest.raises(StoreError) as raised:
        Store.open(path).close()
    assert "\n" not in raised.value.message
    assert str(path) in raised.value.message


def test_unreadable_schema_is_reported_in_one_sentence(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA writable_schema=ON")
        conn.execute("UPDATE sqlite_master SET sql = 'CREATE TABEL jobs (' WHERE name = 'jobs'")
        conn.commit()
    assert "is damaged" in open_error(path).message


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise KeyboardInterrupt", "raise BaseException('lost')"])
def test_process_exits_with_a_sentence_when_its_writer_dies(path: Path, ending: str) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from paicluster.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        f"def fail(conn):\n    {ending}\n"
        "store.write_sync(fail)\n"
        "print('still here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-2:]
    assert last[0].startswith(f"paicluster: The writer of the database {path} failed"), done.stderr
    assert last[1].startswith("Start the server again")
    assert users_in(path) == 500


def test_marker_is_private_and_survives_a_damaged_content(path: Path) -> None:
    marker = path.with_name("cluster.db-session")
    assert marker.stat().st_mode & 0o777 == 0o600
    for content in (b"", b"\xff" * 512, b"[1]", b'{"state": 3}'):
        marker.write_bytes(content)
        assert users_in(path) == 500


@pytest.mark.slow
def test_start_after_a_clean_shutdown_does_not_depend_on_the_number_of_jobs(
    tmp_path: Path, new_job: Callable[..., NewJob]
) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    for start in range(0, 30_000, 5000):
        new = [new_job(f"job{n}", config="x" * 500) for n in range(start, start + 5000)]
        store.write_sync(lambda conn, new=new: jobs.insert_jobs(conn, new))  # type: ignore[misc]
    store.close()
    # Processor time: whatever else the machine does.
    opened = []
    for _ in range(5):
        started = time.process_time()
        store = Store.open(path)
        opened.append(time.process_time() - started)
        store.close()
    started = time.process_time()
    assert problems_of(path) == []
    # Of 30,000 jobs the check takes a hundred times as long.
    assert min(opened) < (time.process_time() - started) / 20
