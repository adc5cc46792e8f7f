"""Users and their tokens: plain functions over a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, delete, func, insert, literal_column, select, update

from paicluster.store import groups
from paicluster.store.rows import TokenRow, UserRow
from paicluster.store.tables import jobs, users
from paicluster.store.tokens import (
    add_token,
    any_issued,
    delete_expired,
    delete_token,
    delete_tokens_of_user,
    get_token,
    list_tokens,
    touch_tokens_of,
)
from paiprotocol.errors import Conflict

__all__ = [
    "TokenRow",
    "UserRow",
    "add_token",
    "add_user",
    "any_issued",
    "count_users",
    "delete_expired",
    "delete_token",
    "delete_tokens_of_user",
    "delete_user",
    "get_token",
    "get_user",
    "list_tokens",
    "list_users",
    "unstopped_jobs",
    "update_user",
]


def get_user(conn: Connection, username: str) -> UserRow | None:
    row = conn.execute(select(users).where(users.c.username == username)).fetchone()
    return None if row is None else UserRow(*row)


def add_user(
    conn: Connection,
    username: str,
    password_hash: str,
    *,
    created_ms: int,
    email: str = "",
    admin: bool = False,
    extension: str = "{}",
    in_groups: Iterable[str] = (),
) -> UserRow:
    """Add a user, as a member of `default`, of ``in_groups``, and as an administrator of `admingroup`."""
    row = UserRow(username, password_hash, email, admin, extension, created_ms)
    if get_user(conn, username) is not None:
        raise Conflict(f"User name {username} already exists.", code="ConflictUserError")
    conn.execute(insert(users).values({name: getattr(row, name) for name in row.__slots__}))
    groups.set_groups(conn, username, (groups.DEFAULT, *in_groups, *([groups.ADMINS] if admin else ())))
    return row


def update_user(conn: Connection, username: str, **columns: Any) -> bool:
    """Set columns of a user; False when there is no such user."""
    admin = columns.pop("admin", None)
    if get_user(conn, username) is None:
        return False
    if admin is not None:
        groups.set_admin(conn, username, admin)
    if columns:
        touch_tokens_of(conn, username)
        conn.execute(update(users).where(users.c.username == username).values(**columns))
    return True


def list_users(conn: Connection, *, offset: int = 0, limit: int | None = None) -> list[UserRow]:
    query = select(users).order_by(users.c.username).limit(limit).offset(offset)
    return [UserRow(*row) for row in conn.execute(query)]


def count_users(conn: Connection) -> int:
    return conn.execute(select(func.count()).select_from(users)).scalar() or 0


def unstopped_jobs(conn: Connection, username: str) -> list[int]:
    """Unfinished jobs of a user that are not being stopped."""
    # The exact expression of the partial index, so that SQLite uses it.
    unfinished = jobs.c.sub_state != literal_column("'Completed'")
    query = select(jobs.c.id).where(unfinished, jobs.c.username == username, jobs.c.execution_type != "STOP")
    return list(conn.execute(query).scalars())


def delete_user(conn: Connection, username: str) -> bool:
    """Delete a user and the user's tokens; jobs stay."""
    touch_tokens_of(conn, username)
    return conn.execute(delete(users).where(users.c.username == username)).rowcount > 0
