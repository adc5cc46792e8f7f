"""Schema version: creates the database, or upgrades it to this version's schema.

Only an upgrade imports Alembic.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection

from paicluster.store import new_database, sqlite
from paicluster.store.new_database import VERSION_TABLE
from paiprotocol.errors import StoreError

# Every revision in ``migrations/versions``, oldest first; the last one is that of this version.
REVISIONS = (
    "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012", "0013",
    "0014", "0015", "0016",
)  # fmt: skip
HEAD = REVISIONS[-1]


# In place of the revision of a file whose rows were moved to another database. Every version refuses it.
_MOVED = "moved"


def mark_moved(path: Path) -> None:
    """Mark a file whose rows are in another database now: no server starts on it."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (_MOVED,))


def migrate(conn: Connection, path: Path) -> None:
    """Create or upgrade the schema in one transaction; an upgrade leaves a backup beside the database."""
    revision = revision_of(conn, sqlite.table_names(conn), str(path))
    if revision == HEAD:
        return
    if revision is None:
        new_database.create(conn, HEAD)
        return
    sqlite.back_up(conn, path.with_name(f"{path.name}.before-{HEAD}"))
    from paicluster.store.migrations.upgrade import upgrade

    sqlite.without_foreign_keys(conn, True)
    try:
        upgrade(conn, HEAD, has_broken_references=sqlite.broken_foreign_keys)
    finally:
        sqlite.without_foreign_keys(conn, False)


def revision_of(conn: Connection, tables: Collection[str], database: str) -> str | None:
    """Revision of the schema of a database with these tables; None if it is empty."""
    if not tables:
        return None
    row = None
    if VERSION_TABLE in tables:
        row = conn.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        conn.rollback()
    if row is None:
        raise StoreError(f"{database} is a database, but not that of a cluster.")
    revision = str(row[0])
    if revision == _MOVED:
        raise StoreError(
            f"The jobs and users of {database} were moved to a database server (paicluster migrate-store).",
            hint="Set `database` in cluster.yaml to its address.",
        )
    if revision not in REVISIONS:
        raise StoreError(
            f"The cluster's database {database} was made by a newer version"
            f" (schema {revision}; this one knows {HEAD}).",
            hint="Upgrade openpaisdk, or use another home.",
        )
    return revision
