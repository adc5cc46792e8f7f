"""Small records of users, deleted with their user. Plain functions over a connection."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select

from paicluster.store.tables import user_records as records

CERTIFICATE = "certificate"
CERTIFICATE_DAYS = 365
"""How long a certificate is valid."""


class UserRecord(NamedTuple):
    """``kind`` is `registry`, `published` or `certificate`; ``name`` is unique among those of a user."""

    kind: str
    name: str
    username: str
    created_ms: int
    sealed: bytes

    @property
    def certificate_expires_s(self) -> float:
        return self.created_ms / 1000 + CERTIFICATE_DAYS * 24 * 3600


def put_record(conn: Connection, record: UserRecord) -> None:
    """Add a record, or replace the one of its name."""
    delete_record(conn, record.kind, record.username, record.name)
    conn.execute(insert(records).values(record._asdict()))


def list_records(conn: Connection, kind: str, username: str) -> list[UserRecord]:
    """A user's records of a kind, oldest first."""
    query = select(records).where(records.c.kind == kind, records.c.username == username)
    return [UserRecord(*row) for row in conn.execute(query.order_by(records.c.created_ms, records.c.name))]


def count_records(conn: Connection, kind: str, username: str) -> int:
    query = select(func.count()).where(records.c.kind == kind, records.c.username == username)
    return int(conn.execute(query).scalar_one())


def find_record(conn: Connection, kind: str, name: str, username: str = "") -> UserRecord | None:
    """The record of this name; without a user, that of any."""
    query = select(records).where(records.c.kind == kind, records.c.name == name)
    if username:
        query = query.where(records.c.username == username)
    row = conn.execute(query.limit(1)).fetchone()
    return None if row is None else UserRecord(*row)


def delete_record(conn: Connection, kind: str, username: str, name: str) -> bool:
    statement = delete(records).where(
        records.c.kind == kind, records.c.username == username, records.c.name == name
    )
    return conn.execute(statement).rowcount > 0
