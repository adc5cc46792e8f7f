"""Accounts: logging in, making and changing them, the first administrator."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from openpaisdk.errors import ConfigError, Conflict, Forbidden, InvalidParameters, NotFound
from paicluster.auth.passwords import hash_password, verify_password
from paicluster.store import Store, groups, jobs, users
from paicluster.store.users import UserRow

ADMIN = "admin"
SHORTEST_PASSWORD = 6


class WrongPassword(Forbidden):
    """Somebody who is logged in gave another password than his own, as the original tells him."""

    def __init__(self) -> None:
        super().__init__("Pls input the correct password.")


async def login(store: Store, username: str, password: str) -> UserRow:
    """The user, when the password is right."""
    user = await store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise InvalidParameters(f"User {username} is not found.", code="NoUserError")
    # The hash takes its time on purpose; the loop must not.
    if not await asyncio.to_thread(verify_password, password, user.password_hash):
        raise InvalidParameters("Password is incorrect.", code="IncorrectPasswordError")
    return user


async def check_password(user: UserRow, password: str) -> None:
    """For somebody who is logged in: it is his own, or WrongPassword."""
    if not await asyncio.to_thread(verify_password, password, user.password_hash):
        raise WrongPassword


async def create(
    store: Store,
    username: str,
    password: str,
    *,
    email: str = "",
    admin: bool = False,
    virtual_clusters: Sequence[str] = (),
    extension: Mapping[str, Any] | None = None,
) -> None:
    """Make a user who may use these virtual clusters. ``extension`` comes with its secrets sealed."""
    password_hash = await asyncio.to_thread(hash_password, password)
    now_ms = int(time.time() * 1000)

    def make(conn: Connection) -> None:
        unknown = [name for name in virtual_clusters if name not in groups.existing(conn, virtual_clusters)]
        if unknown:
            raise NotFound(f"No groups for vc: {','.join(unknown)}", code="NoGroupError")
        if groups.get_group(conn, username) is not None:
            # He would have the group's rights in the storage, where everybody has a group of his own name.
            raise Conflict(
                f"There is a group {username}, and no user may be called like a group.",
                code="ConflictUserError",
            )
        users.add_user(
            conn,
            username,
            password_hash,
            created_ms=now_ms,
            email=email,
            admin=admin,
            extension=json.dumps(extension or {}),
            in_groups=cluster_groups(conn, virtual_clusters),
        )

    await store.write(make)


def cluster_groups(conn: Connection, virtual_clusters: Sequence[str]) -> list[str]:
    """The groups that stand for these virtual clusters."""
    found = groups.groups_of_clusters(conn, virtual_clusters)
    if any(name not in found for name in virtual_clusters):
        wanted, known = ",".join(virtual_clusters), ",".join(found)
        raise InvalidParameters(f"Try to update: {wanted}, but found: {known}", code="NoVirtualClusterError")
    return list(found)


def set_virtual_clusters(conn: Connection, username: str, virtual_clusters: Sequence[str]) -> None:
    """Let a user use these virtual clusters and no others; groups that stand for none he stays in."""
    wanted = cluster_groups(conn, virtual_clusters)
    now = groups.groups_of(conn, username)
    of_clusters = groups.groups_of_clusters(conn, now)
    kept = [name for name in now if name not in of_clusters or name == groups.DEFAULT]
    groups.set_groups(conn, username, (groups.DEFAULT, *kept, *wanted))


def merge_extension(conn: Connection, user: UserRow, more: Mapping[str, Any]) -> None:
    """Set these keys of a user's extension; the others stay."""
    extension = json.dumps({**json.loads(user.extension), **more})
    users.update_user(conn, user.username, extension=extension)


def remove(conn: Connection, username: str) -> None:
    """Remove a user with his tokens, and stop his jobs, which nobody could any more.

    An administrator must be made an ordinary user first.
    """
    user = users.get_user(conn, username)
    if user is None:
        raise user_not_found(username)
    if user.admin:
        raise Forbidden(f"Admin {username} is not allowed to remove.", code="RemoveAdminError")
    for job_id in users.unstopped_jobs(conn, username):
        jobs.set_execution_type(conn, job_id, "STOP")
    users.delete_user(conn, username)


def user_not_found(username: str) -> NotFound:
    return NotFound(f"User {username} not found.", code="NoUserError")


async def set_password(store: Store, username: str, password: str) -> bool:
    """Give a user a new password, which ends his sessions; False when there is no such user."""
    password_hash = await asyncio.to_thread(hash_password, password)
    return await store.write(lambda conn: put_password(conn, username, password_hash))


def put_password(conn: Connection, username: str, password_hash: str) -> bool:
    """As `set_password`, with the hash, in a transaction of the caller's."""
    if not users.update_user(conn, username, password_hash=password_hash):
        return False
    users.delete_tokens_of_user(conn, username, "session")
    return True


def ensure_admin(store: Store, password_from_env: str | None) -> str | None:
    """At the first start of a home make the administrator; the password, when it had to be generated.

    A cluster that has users is left alone, whatever the environment says.
    """
    if store.read_sync(users.count_users):
        return None
    if password_from_env and len(password_from_env) < SHORTEST_PASSWORD:
        raise ConfigError(
            f"The administrator's password must have at least {SHORTEST_PASSWORD} characters.",
            hint="Set PAICLUSTER_ADMIN_PASSWORD to a longer one, or leave it out: one is generated then.",
        )
    if password_from_env and not _is_text(password_from_env):
        raise ConfigError(
            "The administrator's password is not UTF-8 text, and nobody could log in with it.",
            hint="Set PAICLUSTER_ADMIN_PASSWORD to another one.",
        )
    password = password_from_env or secrets.token_urlsafe(12)
    password_hash = hash_password(password)
    now_ms = int(time.time() * 1000)
    store.write_sync(lambda conn: users.add_user(conn, ADMIN, password_hash, created_ms=now_ms, admin=True))
    return None if password_from_env else password


def _is_text(said: str) -> bool:
    """Whether it can be sent and stored: bytes of the environment that are none come as half characters."""
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True
