"""Owners of source archives: plain functions over a connection."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from paicluster.store.compiled_statements import execute
from paicluster.store.tables import source_owners


def add_owner(conn: Connection, sha256: str, username: str) -> None:
    """Add an owner; without effect when the user was removed while the archive was uploaded."""
    execute(
        conn,
        "INSERT INTO source_owners (sha256, username) SELECT ?, username FROM users WHERE username = ?"
        " ON CONFLICT DO NOTHING",
        (sha256, username),
    ).close()


def is_owner(conn: Connection, sha256: str, username: str) -> bool:
    query = select(source_owners.c.sha256).where(
        source_owners.c.sha256 == sha256, source_owners.c.username == username
    )
    return conn.execute(query).first() is not None


def archives_of(conn: Connection, username: str) -> list[str]:
    """SHA-256 of all archives of a user."""
    query = select(source_owners.c.sha256).where(source_owners.c.username == username)
    return list(conn.execute(query).scalars())


def all_owners(conn: Connection) -> list[tuple[str, str]]:
    """SHA-256 and user of every archive."""
    return [(row.sha256, row.username) for row in conn.execute(select(source_owners))]


def forget_archive(conn: Connection, sha256: str) -> None:
    """Remove the owners of an archive that was deleted."""
    conn.execute(delete(source_owners).where(source_owners.c.sha256 == sha256))
