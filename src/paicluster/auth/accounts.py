"""Accounts: logging in, the first administrator, changing a password."""

from __future__ import annotations

import asyncio
import secrets
import time

from sqlalchemy import Connection

from openpaisdk.errors import ConfigError, InvalidParameters
from paicluster.auth.passwords import hash_password, verify_password
from paicluster.store import Store, users
from paicluster.store.users import UserRow

ADMIN = "admin"
SHORTEST_PASSWORD = 6


async def login(store: Store, username: str, password: str) -> UserRow:
    """The user, when the password is right."""
    user = await store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise InvalidParameters(f"User {username} is not found.", code="NoUserError")
    # The hash takes its time on purpose; the loop must not.
    if not await asyncio.to_thread(verify_password, password, user.password_hash):
        raise InvalidParameters("Password is incorrect.", code="IncorrectPasswordError")
    return user


async def set_password(store: Store, username: str, password: str) -> bool:
    """Give a user a new password, which ends his sessions; False when there is no such user."""
    password_hash = await asyncio.to_thread(hash_password, password)

    def change(conn: Connection) -> bool:
        if not users.update_user(conn, username, password_hash=password_hash):
            return False
        users.delete_tokens_of_user(conn, username, "session")
        return True

    return await store.write(change)


def ensure_admin(store: Store, password_from_env: str | None) -> str | None:
    """At the first start of a home make the administrator; the password, when it had to be generated.

    A cluster that has users is left alone, whatever the environment says.
    """
    if store.read_sync(users.list_users):
        return None
    if password_from_env and len(password_from_env) < SHORTEST_PASSWORD:
        raise ConfigError(
            f"The administrator's password must have at least {SHORTEST_PASSWORD} characters.",
            hint="Set PAICLUSTER_ADMIN_PASSWORD to a longer one, or leave it out: one is generated then.",
        )
    password = password_from_env or secrets.token_urlsafe(12)
    password_hash = hash_password(password)
    now_ms = int(time.time() * 1000)
    store.write_sync(lambda conn: users.add_user(conn, ADMIN, password_hash, created_ms=now_ms, admin=True))
    return None if password_from_env else password
