"""Users: login, creating and changing users, the first administrator."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from paicluster.auth.passwords import NO_PASSWORD, hash_password, verify_password
from paicluster.store import Store, groups, jobs, users
from paicluster.store.users import UserRow
from paiprotocol.errors import (
    DISABLED_USER,
    ConfigError,
    Conflict,
    Forbidden,
    InvalidParameters,
    NotFound,
    Unauthorized,
)

ADMIN = "admin"
MIN_PASSWORD_LENGTH = 6


class WrongPassword(Forbidden):
    """A logged-in user gave a wrong current password; the message is OpenPAI's."""

    def __init__(self, hint: str = "") -> None:
        super().__init__("Pls input the correct password.", hint=hint)


class DisabledUser(Unauthorized):
    """A user whom an administrator disabled; only the jobs of that user go on."""

    def __init__(self, username: str) -> None:
        super().__init__(
            f"User {username} is disabled.",
            code=DISABLED_USER,
            hint="Ask an administrator to enable the account.",
        )


async def login(store: Store, username: str, password: str) -> UserRow:
    """The user, if the password is correct."""
    user = await store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise InvalidParameters(f"User {username} is not found.", code="NoUserError")
    # The hash is slow on purpose; the event loop must not wait for it.
    if not await asyncio.to_thread(verify_password, password, user.password_hash):
        raise InvalidParameters("Password is incorrect.", code="IncorrectPasswordError")
    if user.disabled_ms is not None:
        raise DisabledUser(username)
    return user


async def has_password(store: Store, username: str) -> bool:
    """Whether the user can log in with a password; the user of an embedded cluster has none."""
    user = await store.read(lambda conn: users.get_user(conn, username))
    return user is not None and user.password_hash != NO_PASSWORD


async def check_password(user: UserRow, password: str) -> None:
    """Check the current password of a logged-in user; raises WrongPassword."""
    if user.password_hash == NO_PASSWORD:
        raise WrongPassword(hint="This account has no password yet. An administrator sets the first one.")
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
    """Create a user with access to these virtual clusters. Secrets in ``extension`` are sealed already."""
    password_hash = await asyncio.to_thread(hash_password, password)
    now_ms = int(time.time() * 1000)

    def insert(conn: Connection) -> None:
        unknown = [name for name in virtual_clusters if name not in groups.existing(conn, virtual_clusters)]
        if unknown:
            raise NotFound(f"No groups for vc: {','.join(unknown)}", code="NoGroupError")
        if groups.get_group(conn, username) is not None:
            # The user would have the group's rights in the storage, where each user has a group of that name.
            raise Conflict(
                f"There is a group {username}: a user cannot have the name of a group.",
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

    await store.write(insert)


def cluster_groups(conn: Connection, virtual_clusters: Sequence[str]) -> list[str]:
    """The groups that grant access to these virtual clusters."""
    group_of = groups.groups_of_clusters(conn, virtual_clusters)
    if any(name not in group_of for name in virtual_clusters):
        requested, known = ",".join(virtual_clusters), ",".join(group_of)
        raise InvalidParameters(
            f"Try to update: {requested}, but found: {known}", code="NoVirtualClusterError"
        )
    return list(group_of)


def set_virtual_clusters(conn: Connection, username: str, virtual_clusters: Sequence[str]) -> None:
    """Grant a user access to exactly these virtual clusters; other groups are unchanged."""
    granted = cluster_groups(conn, virtual_clusters)
    now = groups.groups_of(conn, username)
    of_clusters = groups.groups_of_clusters(conn, now)
    kept = [name for name in now if name not in of_clusters or name == groups.DEFAULT]
    groups.set_groups(conn, username, (groups.DEFAULT, *kept, *granted))


def merge_extension(conn: Connection, user: UserRow, more: Mapping[str, Any]) -> None:
    """Set these keys of a user's extension; the others are kept."""
    extension = json.dumps({**json.loads(user.extension), **more})
    users.update_user(conn, user.username, extension=extension)


def remove(conn: Connection, username: str) -> None:
    """Remove a user with all tokens, and stop the user's jobs.

    Administrator rights must be revoked first.
    """
    user = users.get_user(conn, username)
    if user is None:
        raise user_not_found(username)
    if user.admin:
        raise Forbidden(f"Admin {username} is not allowed to remove.", code="RemoveAdminError")
    for job_id in users.unstopped_jobs(conn, username):
        jobs.set_execution_type(conn, job_id, "STOP")
    users.delete_user(conn, username)


def set_disabled(conn: Connection, username: str, is_disabled: bool) -> int:
    """Disable or enable a user; the number of the user's jobs that go on.

    A disabled user cannot log in, and the user's tokens and certificates are refused until the user is
    enabled. Jobs keep their own tokens and go on, those that wait as well; new ones are not accepted, and
    what leads into running ones ends.
    """
    user = users.get_user(conn, username)
    if user is None:
        raise user_not_found(username)
    if is_disabled != (user.disabled_ms is not None):
        users.update_user(conn, username, disabled_ms=int(time.time() * 1000) if is_disabled else None)
        if user.admin:
            groups.require_admin(conn)
    return len(users.unstopped_jobs(conn, username))


def user_not_found(username: str) -> NotFound:
    return NotFound(f"User {username} not found.", code="NoUserError")


async def set_password(store: Store, username: str, password: str) -> bool:
    """Set a user's password and end the user's logins; False if there is no such user."""
    password_hash = await asyncio.to_thread(hash_password, password)
    return await store.write(lambda conn: put_password(conn, username, password_hash))


def put_password(conn: Connection, username: str, password_hash: str) -> bool:
    """As `set_password`, with the hash, in the caller's transaction."""
    if not users.update_user(conn, username, password_hash=password_hash):
        return False
    users.delete_tokens_of_user(conn, username, "session")
    return True


def ensure_admin(store: Store, password_from_env: str | None) -> str | None:
    """Create the administrator on the first start of a home; returns the password if it was generated.

    A cluster that has users is left unchanged, whatever the environment says.
    """
    if store.read_sync(users.count_users):
        return None
    if password_from_env and len(password_from_env) < MIN_PASSWORD_LENGTH:
        raise ConfigError(
            f"The administrator's password must have at least {MIN_PASSWORD_LENGTH} characters.",
            hint="Set PAICLUSTER_ADMIN_PASSWORD to a longer one, or unset it: then one is generated.",
        )
    if password_from_env and not _is_text(password_from_env):
        raise ConfigError(
            "The administrator's password is not UTF-8 text, so no login with it could succeed.",
            hint="Set PAICLUSTER_ADMIN_PASSWORD to another one.",
        )
    password = password_from_env or secrets.token_urlsafe(12)
    password_hash = hash_password(password)
    now_ms = int(time.time() * 1000)
    store.write_sync(lambda conn: users.add_user(conn, ADMIN, password_hash, created_ms=now_ms, admin=True))
    return None if password_from_env else password


def _is_text(value: str) -> bool:
    """Whether it can be encoded: invalid bytes in the environment are decoded to lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
