"""Tokens: database rows from which tokens are derived. Plain functions over a connection."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, delete, insert, literal_column, select, true

from paicluster.store.rows import TokenRow
from paicluster.store.tables import jobs, tokens, user_records, users
from paicluster.store.user_records import CERTIFICATE
from paicluster.store.writer import (
    admin_holder_id,
    certificate_holder_id,
    job_token_id,
    touch_tokens,
    user_holder_id,
)

# The exact expression of the partial index, so that SQLite uses it.
_UNFINISHED = jobs.c.sub_state != literal_column("'Completed'")


def add_token(conn: Connection, token: TokenRow) -> None:
    conn.execute(insert(tokens).values({name: getattr(token, name) for name in token.__slots__}))


def get_token(conn: Connection, token_id: str) -> TokenRow | None:
    row = conn.execute(select(tokens).where(tokens.c.id == token_id)).fetchone()
    return None if row is None else TokenRow(*row)


def list_tokens(
    conn: Connection, username: str, now_ms: int, *, offset: int = 0, limit: int | None = None
) -> list[TokenRow]:
    """A user's tokens that have not expired, oldest first."""
    query = select(tokens).where(
        tokens.c.username == username, (tokens.c.expires_ms.is_(None)) | (tokens.c.expires_ms > now_ms)
    )
    query = query.order_by(tokens.c.created_ms, tokens.c.id).limit(limit).offset(offset)
    return [TokenRow(*row) for row in conn.execute(query)]


def any_issued(conn: Connection) -> bool:
    """Whether any token was ever issued, as far as is known. Every job gets one."""
    return any(
        conn.execute(select(literal_column("1")).select_from(of).limit(1)).scalar() for of in (tokens, jobs)
    )


def delete_token(conn: Connection, token_id: str) -> bool:
    return _delete(conn, tokens.c.id == token_id) > 0


def delete_tokens_of_user(conn: Connection, username: str, kind: str) -> int:
    """Revoke a user's tokens of one kind (a new password ends the logins)."""
    return _delete(conn, tokens.c.username == username, tokens.c.kind == kind)


def delete_expired(conn: Connection, now_ms: int) -> int:
    return _delete(conn, tokens.c.expires_ms <= now_ms)


def touch_tokens_of(conn: Connection, username: str) -> None:
    """Record that the rights of this user's tokens changed."""
    _touch_users(conn, [username])
    _touch(conn, tokens.c.username == username, jobs.c.username == username)
    _touch_certificates(conn, user_records.c.username == username)


def touch_all_tokens(conn: Connection) -> None:
    """Record that the rights of many users' tokens changed."""
    _touch_users(conn, conn.execute(select(users.c.username)).scalars())
    _touch(conn, true(), true())
    _touch_certificates(conn, true())


def _touch_users(conn: Connection, usernames: Iterable[str]) -> None:
    for username in usernames:
        touch_tokens(conn, (user_holder_id(username), admin_holder_id(username)))


def _touch_certificates(conn: Connection, of_users: ColumnElement[bool]) -> None:
    serials = conn.execute(select(user_records.c.name).where(user_records.c.kind == CERTIFICATE, of_users))
    touch_tokens(conn, map(certificate_holder_id, serials.scalars()))


def _touch(conn: Connection, of_users: ColumnElement[bool], of_jobs: ColumnElement[bool]) -> None:
    touch_tokens(conn, conn.execute(select(tokens.c.id).where(of_users)).scalars())
    unfinished = select(jobs.c.id, jobs.c.attempt).where(of_jobs, _UNFINISHED)
    touch_tokens(conn, (job_token_id(row.id, row.attempt) for row in conn.execute(unfinished)))


def _delete(conn: Connection, *conditions: ColumnElement[bool]) -> int:
    deleted = conn.execute(delete(tokens).where(*conditions).returning(tokens.c.id)).scalars().all()
    touch_tokens(conn, deleted)
    return len(deleted)
