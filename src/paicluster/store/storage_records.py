"""Storage records that clients read and write through the API. Plain functions over a connection."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, delete, insert, select, update

from paicluster.store.tables import storage_records as records


class StorageRecord(NamedTuple):
    """``kind`` is `config` or `server`; ``groupname``: the group that may use it, None for all users."""

    kind: str
    name: str
    groupname: str | None
    sealed: bytes

    @property
    def groups(self) -> tuple[str, ...]:
        return _groups(self.groupname)


def list_records(conn: Connection, kind: str) -> list[StorageRecord]:
    query = select(records).where(records.c.kind == kind).order_by(records.c.name)
    return [StorageRecord(*row) for row in conn.execute(query)]


def add_record(conn: Connection, record: StorageRecord) -> bool:
    """Add a record; False when the name exists."""
    if conn.execute(_names(record.kind).where(records.c.name == record.name)).first() is not None:
        return False
    conn.execute(insert(records).values(record._asdict()))
    return True


def update_record(conn: Connection, record: StorageRecord) -> bool:
    """Replace a record; False when the name does not exist."""
    change = update(records).where(records.c.kind == record.kind, records.c.name == record.name)
    return conn.execute(change.values(groupname=record.groupname, sealed=record.sealed)).rowcount > 0


def delete_record(conn: Connection, kind: str, name: str) -> bool:
    statement = delete(records).where(records.c.kind == kind, records.c.name == name)
    return conn.execute(statement).rowcount > 0


def names_and_groups(conn: Connection, kind: str) -> list[tuple[str, tuple[str, ...]]]:
    """Names and groups of the records, without unsealing them."""
    return [(row.name, _groups(row.groupname)) for row in conn.execute(_names(kind).order_by(records.c.name))]


def _groups(groupname: str | None) -> tuple[str, ...]:
    return () if groupname is None else (groupname,)


def _names(kind: str) -> Select[Any]:
    return select(records.c.name, records.c.groupname).where(records.c.kind == kind)
