"""Automatic backups of the database: which are kept, and what is never replaced."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from paicluster.store import Store
from paicluster.store.backups import BackupFolder, expendable, return_to
from paicluster.store.users import add_user, list_users
from paiprotocol.errors import StoreError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
PAGE = 4096


@pytest.fixture
def store(store_in_a_file: Store) -> Store:
    return store_in_a_file


def add(store: Store, name: str) -> None:
    store.write_sync(lambda conn: add_user(conn, name, "x" * 2000, created_ms=0))


def test_hourly_backups_of_a_year_are_few_and_cover_every_age() -> None:
    kept: list[float] = []
    for hour in range(24 * 365):
        kept = [hour * HOUR_S, *kept]
        ages = [hour * HOUR_S - taken for taken in kept]
        removed = expendable(ages, HOUR_S, 30 * DAY_S)
        kept = [taken for number, taken in enumerate(kept) if number not in removed]
    ages = [kept[0] - taken for taken in kept]
    assert len(ages) <= 14
    for age in (2 * HOUR_S, 8 * HOUR_S, DAY_S, 7 * DAY_S, 15 * DAY_S):
        assert any(age / 2 <= one <= age * 2 for one in ages), (age, ages)
    assert max(ages) <= 30 * DAY_S


def test_newest_backups_are_kept_however_old() -> None:
    assert expendable([400 * DAY_S, 401 * DAY_S, 402 * DAY_S, 403 * DAY_S], HOUR_S, 30 * DAY_S) == [3]
    # A clock that was ahead when they were taken.
    assert expendable([-DAY_S, -1.0, 0.0], HOUR_S, 30 * DAY_S) == []


def test_backup_is_private_complete_and_one_file(store: Store, tmp_path: Path) -> None:
    add(store, "alice")
    backup = BackupFolder(tmp_path / "backups").take(tmp_path / "cluster.db")
    assert [file.name for file in backup.path.parent.iterdir()] == [backup.path.name]
    assert backup.path.stat().st_mode & 0o777 == 0o600
    assert backup.path.parent.stat().st_mode & 0o777 == 0o700
    with closing(sqlite3.connect(f"file:{backup.path}?immutable=1", uri=True)) as conn:
        assert conn.execute("SELECT count(*) FROM users WHERE username = 'alice'").fetchone() == (1,)


def test_backup_is_consistent_while_the_store_is_written(store: Store, tmp_path: Path) -> None:
    done = threading.Event()
    writes = 0

    def write() -> None:
        nonlocal writes
        while not done.is_set():
            add(store, f"user{writes}")
            writes += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        folder = BackupFolder(tmp_path / "backups")
        for _ in range(5):
            before = writes
            backup = folder.take(tmp_path / "cluster.db")
            with closing(sqlite3.connect(f"file:{backup.path}?immutable=1", uri=True)) as conn:
                assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                assert conn.execute("SELECT count(*) FROM users").fetchone()[0] >= before
    finally:
        done.set()
        thread.join()


def test_damaged_database_replaces_no_backup(store: Store, tmp_path: Path) -> None:
    for number in range(200):
        add(store, f"user{number}")
    folder = BackupFolder(tmp_path / "backups")
    good = folder.take(tmp_path / "cluster.db")
    store.close()
    with (tmp_path / "cluster.db").open("r+b") as file:
        for page in range(10, 40):
            file.seek(page * PAGE)
            file.write(os.urandom(PAGE))
    with pytest.raises(StoreError, match="is damaged"):
        folder.take(tmp_path / "cluster.db")
    assert [backup.path for backup in folder.backups()] == [good.path]
    assert [file.name for file in folder.path.iterdir()] == [good.path.name]


def test_backup_that_a_kill_interrupted_is_removed_by_the_next(store: Store, tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path / "backups")
    folder.path.mkdir()
    (folder.path / "cluster-20260101T000000Z.partial").write_text("half")
    assert folder.backups() == []
    folder.take(tmp_path / "cluster.db")
    assert len(list(folder.path.iterdir())) == 1


def test_folder_that_cannot_be_used_is_one_sentence(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"The folder .*/file/backups cannot be used: Not a directory\."):
        BackupFolder(tmp_path / "file" / "backups").take(tmp_path / "cluster.db")


def test_return_to_a_backup_keeps_the_replaced_files(store: Store, tmp_path: Path) -> None:
    add(store, "alice")
    backup = BackupFolder(tmp_path / "backups").take(tmp_path / "cluster.db")
    add(store, "bob")
    store.close()
    return_to(backup.path, tmp_path / "cluster.db", tmp_path / "aside")
    again = Store.open(tmp_path / "cluster.db")
    names = {user.username for user in again.read_sync(list_users)}
    again.close()
    assert "alice" in names
    assert "bob" not in names
    replaced = Store.open(tmp_path / "aside" / "cluster.db")
    assert "bob" in {user.username for user in replaced.read_sync(list_users)}
    replaced.close()
    assert backup.path.exists()


def test_damaged_or_foreign_backup_changes_nothing(store: Store, tmp_path: Path) -> None:
    add(store, "alice")
    store.close()
    before = (tmp_path / "cluster.db").read_bytes()
    damaged = bytearray(before)
    damaged[5 * PAGE : 40 * PAGE] = os.urandom(35 * PAGE)
    with closing(sqlite3.connect(tmp_path / "foreign")) as conn:
        conn.execute("CREATE TABLE cookies (name TEXT)")
    (tmp_path / "damaged").write_bytes(damaged)
    (tmp_path / "text").write_text("no database" * 1000)
    for name in ("foreign", "damaged", "text"):
        with pytest.raises(StoreError) as raised:
            return_to(tmp_path / name, tmp_path / "cluster.db", tmp_path / "aside")
        assert "\n" not in raised.value.message
        assert (tmp_path / "cluster.db").read_bytes() == before
        assert not (tmp_path / "aside").exists()
    assert not list(tmp_path.glob("*.restoring*"))
