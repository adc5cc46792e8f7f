"""Users and their tokens in the database: plain functions over a connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from openpaisdk.errors import Conflict
from paicluster.store.rows import TokenRow, UserRow
from paicluster.store.tables import jobs, tokens, users
from paicluster.store.writer import job_token_id, touch_tokens

__all__ = [
    "TokenRow",
    "UserRow",
    "add_token",
    "add_user",
    "delete_expired",
    "delete_token",
    "delete_tokens_of_user",
    "delete_user",
    "get_token",
    "get_user",
    "list_tokens",
    "list_users",
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
) -> UserRow:
    row = UserRow(username, password_hash, email, admin, extension, created_ms)
    if get_user(conn, username) is not None:
        raise Conflict(f"User name {username} already exists.", code="ConflictUserError")
    conn.execute(insert(users).values(row_values(row)))
    return row


def update_user(conn: Connection, username: str, **columns: Any) -> bool:
    """Set columns of a user; False when there is no such user."""
    _touch_tokens_of(conn, username)
    return conn.execute(update(users).where(users.c.username == username).values(**columns)).rowcount > 0


def list_users(conn: Connection) -> list[UserRow]:
    return [UserRow(*row) for row in conn.execute(select(users).order_by(users.c.username))]


def delete_user(conn: Connection, username: str) -> bool:
    """Remove a user together with his tokens; his jobs stay."""
    _touch_tokens_of(conn, username)
    return conn.execute(delete(users).where(users.c.username == username)).rowcount > 0


def add_token(conn: Connection, token: TokenRow) -> None:
    conn.execute(insert(tokens).values(row_values(token)))


def get_token(conn: Connection, token_id: str) -> TokenRow | None:
    row = conn.execute(select(tokens).where(tokens.c.id == token_id)).fetchone()
    return None if row is None else TokenRow(*row)


def list_tokens(conn: Connection, username: str, now_ms: int) -> list[TokenRow]:
    """A user's tokens that have not expired, oldest first."""
    query = select(tokens).where(
        tokens.c.username == username, (tokens.c.expires_ms.is_(None)) | (tokens.c.expires_ms > now_ms)
    )
    return [TokenRow(*row) for row in conn.execute(query.order_by(tokens.c.created_ms, tokens.c.id))]


def delete_token(conn: Connection, token_id: str) -> bool:
    return _delete_tokens(conn, tokens.c.id == token_id) > 0


def delete_tokens_of_user(conn: Connection, username: str, kind: str) -> int:
    """Revoke a user's tokens of one kind (a new password ends the sessions)."""
    return _delete_tokens(conn, tokens.c.username == username, tokens.c.kind == kind)


def delete_expired(conn: Connection, now_ms: int) -> int:
    return _delete_tokens(conn, tokens.c.expires_ms <= now_ms)


def row_values(row: UserRow | TokenRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _delete_tokens(conn: Connection, *which: ColumnElement[bool]) -> int:
    gone = conn.execute(delete(tokens).where(*which).returning(tokens.c.id)).scalars().all()
    touch_tokens(conn, gone)
    return len(gone)


def _touch_tokens_of(conn: Connection, username: str) -> None:
    touch_tokens(conn, conn.execute(select(tokens.c.id).where(tokens.c.username == username)).scalars())
    unfinished = (jobs.c.username == username) & (jobs.c.sub_state != "Completed")
    of_jobs = conn.execute(select(jobs.c.id, jobs.c.attempt).where(unfinished))
    touch_tokens(conn, (job_token_id(row.id, row.attempt) for row in of_jobs))
