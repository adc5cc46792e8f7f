"""Databases as older versions left them, for the tests of migrations."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from paicluster.store import sqlite
from paicluster.store.migrations.upgrade import upgrade

# By column of an older revision: what it is called now.
_RENAMED = {"need": "resource_request"}


def migrate_new_database(path: Path, revision: str) -> None:
    """Create a database by running all migrations up to ``revision``."""
    engine = sqlite.make_engine(path)
    with sqlite.open_writer(engine) as conn:
        upgrade(conn, revision)
    engine.dispose()


def rewind_database(path: Path, revision: str) -> None:
    """Give the database the schema of ``revision``, with the rows that it had room for."""
    old_path = path.with_name(path.name + ".old")
    migrate_new_database(old_path, revision)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("ATTACH DATABASE ? AS old", (str(old_path),))
        with conn:
            for (table,) in conn.execute(
                "SELECT name FROM old.sqlite_master WHERE type = 'table'"
            ).fetchall():
                if not table.startswith(("alembic_", "job_search", "sqlite_")):
                    _copy_rows(conn, table)
    old_path.replace(path)


def _copy_rows(conn: sqlite3.Connection, table: str) -> None:
    columns = [name for _, name, *_ in conn.execute(f"PRAGMA old.table_info({table})")]
    sources = ", ".join(_RENAMED.get(name, name) for name in columns)
    conn.execute(f"DELETE FROM old.{table}")  # what the migrations inserted
    conn.execute(f"INSERT INTO old.{table} ({', '.join(columns)}) SELECT {sources} FROM main.{table}")
