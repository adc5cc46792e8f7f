"""Schema version: creates the database, or upgrades it to this version's schema.

Only an upgrade imports Alembic.
"""

from __future__ import annotations

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


def migrate(conn: Connection, path: Path) -> None:
    """Create or upgrade the schema in one transaction; an upgrade leaves a backup beside the database."""
    revision = _revision(conn, path)
    if revision == HEAD:
        return
    if revision is None:
        new_database.create(conn, HEAD)
        return
    sqlite.back_up(conn, path.with_name(f"{path.name}.before-{HEAD}"))
    from paicluster.store.migrations.upgrade import upgrade

    sqlite.without_foreign_keys(conn, True)
    try:
        upgrade(conn, HEAD)
    finally:
        sqlite.without_foreign_keys(conn, False)


def _revision(conn: Connection, path: Path) -> str | None:
    """Revision of the schema on disk; None for an empty database."""
    tables = sqlite.table_names(conn)
    if not tables:
        return None
    row = None
    if VERSION_TABLE in tables:
        row = conn.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        conn.rollback()
    if row is None:
        raise StoreError(f"{path} is a database, but not that of a cluster.")
    revision = str(row[0])
    if revision not in REVISIONS:
        raise StoreError(
            f"The cluster's database {path} was made by a newer version"
            f" (schema {revision}; this one knows {HEAD}).",
            hint="Upgrade openpaisdk, or use another home.",
        )
    return revision
