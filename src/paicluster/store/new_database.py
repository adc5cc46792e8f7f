"""New databases: created from the tables at once, as all migrations together would leave them.

A test compares the two, rows included.
"""

from __future__ import annotations

from sqlalchemy import Connection

from paicluster.store import groups
from paicluster.store.compiled_statements import execute
from paicluster.store.dialect_sql import dialect_of
from paicluster.store.tables import metadata

# As Alembic declares it; not part of `metadata`, whose tables are ours.
VERSION_TABLE = "alembic_version"


def create(conn: Connection, revision: str) -> None:
    """Create the schema of ``revision``, which is that of the tables, in one transaction."""
    with conn.begin():
        metadata.create_all(conn, checkfirst=False)
        for statement in dialect_of(conn).create_index:
            conn.exec_driver_sql(statement)
        groups.insert_predefined(conn)
        conn.exec_driver_sql(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL,"
            f" CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
        execute(conn, f"INSERT INTO {VERSION_TABLE} VALUES (?)", (revision,)).close()
