"""Opening a broken or unwritable database gives a one-sentence error."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import insert

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store, jobs
from paicluster.store.jobs import NewJob
from paicluster.store.tables import users
from paicluster.store.users import add_user, list_users
from paiprotocol.errors import StoreError
from support.small_disk import fill, mounted


def open_error(path: Path) -> str:
    with pytest.raises(StoreError) as raised:
        Store.open(path).close()
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert "locked" not in sentence
    assert str(path) in sentence
    return sentence


def add_users(store: Store, count: int) -> None:
    columns = {"password_hash": "x" * 200, "email": "", "admin": False, "extension": "{}"}
    rows = [{"username": f"user{n}", "created_ms": n, **columns} for n in range(count)]
    store.write_sync(lambda conn: conn.execute(insert(users), rows))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=2m") as disk:
        yield disk


def test_new_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    before = os.umask(0o022)
    try:
        store = Store.open(path)
        add_users(store, 1)
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_commit_is_on_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cluster.db")
    settings = store.write_sync(
        lambda conn: [
            conn.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    )
    assert settings == ["wal", 2, 1]
    store.close()


def test_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_text("this is a diary, not a database\n" * 100)
    assert "is not a database" in open_error(path)
    assert path.read_text().startswith("this is a diary")


def test_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path)
    add_users(store, 500)
    store.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)
    path.write_bytes(bytes(content))
    assert "damaged" in open_error(path)


def test_damage_found_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    Store.open(path).close()
    pages_of_the_schema = path.stat().st_size // 4096
    store = Store.open(path)
    add_users(store, 2000)
    store.close()
    content = bytearray(path.read_bytes())
    for page in range(pages_of_the_schema, len(content) // 4096):
        content[page * 4096 : (page + 1) * 4096] = os.urandom(4096)
    path.write_bytes(bytes(content))
    store = Store.open(path)
    with pytest.raises(StoreError, match="damaged"):
        store.read_sync(list_users)
    store.close()


def test_truncated_database(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path)
    add_users(store, 2000)
    store.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(StoreError, match="damaged"):
        store = Store.open(path)
        try:
            store.read_sync(list_users)
        finally:
            store.close()


def test_database_of_a_newer_version_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    Store.open(path).close()
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    conn.close()
    before = path.read_bytes()
    assert "newer version" in open_error(path)
    assert path.read_bytes() == before


def test_foreign_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE cookies (name TEXT)")
    conn.close()
    assert "not that of a cluster" in open_error(path)


def test_missing_folder(tmp_path: Path) -> None:
    assert "there is no folder" in open_error(tmp_path / "nowhere" / "cluster.db")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "cluster.db").mkdir()
    assert "it is a folder" in open_error(tmp_path / "cluster.db")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every account can enter, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp(prefix="pai-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def unprivileged_open_error(path: Path) -> str:
    """Root may write everywhere, so an unprivileged user opens it in a separate process."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from paiprotocol.errors import StoreError\n"
        "from paicluster.store import Store\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: Store.open(Path(sys.argv[1]))\n"
        "except StoreError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
    )
    assert len(result.stdout.splitlines()) == 1, result.stderr
    return result.stdout


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o755), (0o666, 0o555)])
def test_read_only_file_or_folder(public_folder: Path, file_mode: int, folder_mode: int) -> None:
    path = public_folder / "cluster.db"
    Store.open(path).close()
    path.chmod(file_mode)
    public_folder.chmod(folder_mode)
    try:
        assert "read-only" in unprivileged_open_error(path)
    finally:
        public_folder.chmod(0o755)


def test_folder_that_may_not_be_entered(public_folder: Path) -> None:
    closed = public_folder / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0)
    try:
        assert "is closed to this account" in unprivileged_open_error(closed / "home/cluster.db")
    finally:
        closed.chmod(0o755)


def test_read_only_disk(small_disk: Path) -> None:
    path = small_disk / "cluster.db"
    Store.open(path).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert "read-only" in open_error(path)


def test_full_disk_at_the_start(small_disk: Path) -> None:
    fill(small_disk)
    sentence = open_error(small_disk / "cluster.db")
    assert "is full" in sentence


def test_full_disk_fails_writes_only(small_disk: Path) -> None:
    store = Store.open(small_disk / "cluster.db", render_summary)
    add_users(store, 10)
    filler = fill(small_disk)
    big = [NewJob("alice", f"job{n}", "default", "x" * 100_000, "{}", n) for n in range(10)]
    with pytest.raises(StoreError, match="is full"):
        store.write_sync(lambda conn: jobs.insert_jobs(conn, big))
    assert len(store.read_sync(list_users)) == 10
    filler.unlink()
    inserted = store.write_sync(lambda conn: jobs.insert_jobs(conn, big[:2]))
    assert len(inserted) == 2
    assert store.read_sync(lambda conn: jobs.get_job(conn, "alice~job1")) is not None
    store.close()
    again = Store.open(small_disk / "cluster.db")
    assert len(again.read_sync(list_users)) == 10
    again.close()


def test_writes_go_on_after_a_commit_that_the_full_disk_refused(small_disk: Path) -> None:
    """Small writes are held in memory until their commit, which is what fails then."""
    store = Store.open(small_disk / "cluster.db")
    filler = fill(small_disk)
    added = 0
    with pytest.raises(StoreError, match="is full"):
        for number in range(5000):
            name = f"user{number}"
            store.write_sync(partial(add_user, username=name, password_hash="x" * 200, created_ms=0))
            added += 1
    filler.unlink()
    store.write_sync(partial(add_user, username="later", password_hash="x", created_ms=0))
    assert len(store.read_sync(list_users)) == added + 1
    store.close()


def test_all_writes_of_a_batch_fail_on_a_full_disk(small_disk: Path) -> None:
    import asyncio

    store = Store.open(small_disk / "cluster.db", render_summary)
    fill(small_disk)
    seen: list[int] = []
    store.changes.subscribe(seen.append)

    async def main() -> list[object]:
        submissions = [
            store.write_batched(jobs.INSERT_JOB, NewJob("alice", f"job{n}", "default", "x" * 50_000, "{}", n))
            for n in range(30)
        ]
        writes = [store.write(lambda conn: add_user(conn, "bob", "hash", created_ms=0))]
        return await asyncio.gather(*submissions, *writes, return_exceptions=True)

    results = asyncio.run(main())
    failed = [result for result in results if isinstance(result, Exception)]
    assert failed
    assert {type(error) for error in failed} == {StoreError}
    accepted = sum(isinstance(result, jobs.Inserted) for result in results)
    listed = store.read_sync(lambda conn: jobs.list_jobs(conn, jobs.JobQuery(with_total=True)))
    assert listed.total == accepted == len(seen)
    store.close()
