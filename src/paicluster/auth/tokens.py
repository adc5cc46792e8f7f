"""Tokens: JSON Web Tokens (HS256) that can be revoked.

A token is computed from its row and the key, so the database holds no token. It is valid while its signature
is correct, its row exists and it has not expired. A job's own token needs no row: it is valid while that
attempt of the job lasts.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection

from paicluster.auth import jwt, local_admin
from paicluster.auth.key_files import load_key
from paicluster.auth.users import DisabledUser
from paicluster.store import Store, groups, jobs, user_records, users
from paicluster.store.rows import JobRow, TokenRow, UserGrants
from paicluster.store.writer import CERTIFICATE_HOLDER, admin_holder_id, job_token_id, user_holder_id
from paiprotocol.errors import DISABLED_USER, Forbidden, Unauthorized

Kind = Literal["session", "application"]

LOGIN_S = 7 * 24 * 3600

GUEST = "Guest is not allowed to do this operation."
INVALID = "Your token is invalid."

# A cache larger than this is emptied: with that many live tokens another lookup each is affordable.
_MAX_CACHE_ENTRIES = 20_000

# Name of the rows of delegation tokens; they end with the user's logins.
DELEGATION = "delegation"
# Name of the rows of PaddleCloud's tokens: id and signature, 40 hexadecimal digits as its clients know them.
# The length of the id tells them from other rows, whose names their users choose.
PADDLECLOUD = "paddlecloud"
_HEX_LENGTH = 40
_HEX_ID_LENGTH = 20
_HEX_TOKEN = re.compile(rf"[0-9a-f]{{{_HEX_LENGTH}}}")


class TokenKind(StrEnum):
    """Kind of a token; a route's `authority` names the kinds that it accepts."""

    # Of a login; also that of a local administrator.
    LOGIN = "session"  # its name on the wire and in the database
    # Issued by a user to a program; valid until revoked, or as long as the user chose.
    APPLICATION = "application"
    # Of the tasks of one attempt of a job, and valid as long.
    JOB = "job"
    # Issued through WebHDFS, for files only.
    DELEGATION = "delegation"


@dataclass(frozen=True, slots=True)
class Identity:
    """Authenticated caller. ``job_id``: set for a job's token, which acts for the job's user."""

    username: str
    admin: bool
    kind: TokenKind
    job_id: int | None
    token_id: str
    # What its user may use. A job has the same, without administrator rights.
    access: UserGrants
    # Only of a job's token: others are refused while their user is disabled.
    is_disabled: bool = False

    def holders_in_job_of(self, username: str) -> tuple[str, ...]:
        """Ids that the connections of this caller into a task of that user depend on: see `Tokens.is_live`.

        A job's token stays valid when its user is disabled, so that the job can go on. Its connections end:
        the token may have been copied out of the job. Into the job of another user leads the right of an
        administrator, which that of a local one does not depend on.
        """
        if self.job_id is not None:
            return self.token_id, user_holder_id(self.username)
        if username == self.username or self.token_id.startswith(local_admin.CLAIM):
            return (self.token_id,)
        return self.token_id, admin_holder_id(self.username)

    def holders_of_transfers(self) -> tuple[str, ...]:
        """Ids that the downloads of this caller depend on: see `Tokens.is_live`.

        Those of a job go on when its user is disabled, as the job does. A local administrator's token
        cannot be revoked.
        """
        if self.job_id is not None:
            return (self.token_id,)
        if self.token_id.startswith(local_admin.CLAIM):
            return ()
        # A ticket has no token.
        return (*((self.token_id,) if self.token_id else ()), user_holder_id(self.username))

    def check_enabled(self, consequence: str) -> None:
        """Raise Forbidden for a job of a disabled user; ``consequence`` ends the sentence."""
        if self.is_disabled:
            raise Forbidden(
                f"User {self.username} is disabled: {consequence}.",
                code=DISABLED_USER,
                hint="Ask an administrator to enable the account.",
            )


class Tokens:
    """Issues, verifies and revokes tokens. Verifying one again costs a dictionary lookup."""

    def __init__(self, store: Store, key: bytes, login_s: int = LOGIN_S) -> None:
        self._store = store
        self._key = key
        self._login_s = login_s
        self._known: dict[str, tuple[Identity, float]] = {}
        self._token_of: dict[str, str] = {}
        # Of open streams: when their tokens expire, and what to call when one of these changes.
        self._live: dict[str, float] = {}
        self._watches: dict[str, list[Callable[[], None]]] = {}
        # Counts revocations, so that a concurrent lookup does not cache a revoked token.
        self._revocations = 0
        store.changes.subscribe_tokens(self._forget)

    @classmethod
    def open(cls, store: Store, keys: Path, login_s: int = LOGIN_S) -> Tokens:
        """With the key in the ``keys`` folder, created on first use."""
        return cls(store, load_key(keys, "tokens"), login_s)

    async def issue(self, username: str, kind: Kind, *, name: str = "", lifetime_s: int | None = None) -> str:
        """A new token. Logins last a week, or as configured; applications until revoked.

        ``lifetime_s`` ends it earlier or later.
        """
        row = new_token_row(username, kind, name=name, login_s=self._login_s)
        if lifetime_s is not None:
            row = replace(row, expires_ms=row.created_ms + lifetime_s * 1000)
        await self._store.write(lambda conn: users.add_token(conn, row))
        return self.render(row)

    async def paddlecloud_token(self, username: str) -> str:
        """The token of a user's PaddleCloud clients: hexadecimal, and the same until it is revoked."""

        def find_or_add(conn: Connection) -> TokenRow:
            for row in users.list_tokens(conn, username, int(time.time() * 1000)):
                if row.kind == "application" and len(row.id) == _HEX_ID_LENGTH:
                    return row
            row = new_token_row(username, "application", name=PADDLECLOUD)
            row = replace(row, id=row.id[:_HEX_ID_LENGTH])
            users.add_token(conn, row)
            return row

        return self.render(await self._store.write(find_or_add))

    async def verify(self, token: str) -> Identity:
        """The caller this token identifies; Unauthorized when it is not (or no longer) valid."""
        known = self._known.get(token)
        if known is None:
            known = await self._look_up(token)
        identity, expires = known
        if expires <= time.time():
            raise Unauthorized(INVALID, hint="It has expired: log in again.")
        return identity

    async def is_live(self, holder: str) -> bool:
        """Whether the token with this id is still valid; for streams, which outlive the check at their start.

        ``holder`` may also be a `certificate_holder_id`; a `user_holder_id`: whether that user still exists
        and is not disabled; or an `admin_holder_id`: whether that user is also an administrator.
        """
        expires = self._live.get(holder)
        if expires is None:
            before = self._revocations
            expires = await self._store.read(lambda conn: _expiry_of(conn, holder))
            if before == self._revocations:
                if len(self._live) >= _MAX_CACHE_ENTRIES:
                    self._live.clear()
                self._live[holder] = expires
        return expires > time.time()

    async def are_live(self, holders: Sequence[str]) -> bool:
        for holder in holders:
            if not await self.is_live(holder):
                return False
        return True

    async def has_same_rights(self, identity: Identity) -> bool:
        """Whether the user still has the groups, and the administrator rights, that an identity has."""
        access = await self._store.read(lambda conn: groups.access_of(conn, identity.username))
        had = identity.access
        return (access.groups, access.admin) == (had.groups, had.admin)

    @contextlib.contextmanager
    def watch_all(self, holders: Sequence[str], on_change: Callable[[], None]) -> Iterator[None]:
        with contextlib.ExitStack() as watches:
            for holder in holders:
                watches.enter_context(self.watch(holder, on_change))
            yield

    @contextlib.contextmanager
    def watch(self, holder: str, on_change: Callable[[], None]) -> Iterator[None]:
        """Call ``on_change`` when this token is revoked or its user changes, until the block is left."""
        watches = self._watches.setdefault(holder, [])
        watches.append(on_change)
        try:
            yield
        finally:
            watches.remove(on_change)
            if not watches:
                self._watches.pop(holder, None)

    async def rows(self, username: str, *, offset: int = 0, limit: int = 1 << 60) -> Sequence[TokenRow]:
        """Rows of a user's valid tokens, oldest first."""
        now_ms = int(time.time() * 1000)
        return await self._store.read(
            lambda conn: users.list_tokens(conn, username, now_ms, offset=offset, limit=limit)
        )

    async def find(self, token: str) -> TokenRow | None:
        """The row of a token, given by the token or by its id."""
        token_id = self.token_id(token) or token
        return await self._store.read(lambda conn: users.get_token(conn, token_id))

    async def revoke(self, token: str) -> bool:
        """Revoke a token, given by the token or by its id; False when it was not valid any more."""
        token_id = self.token_id(token) or token
        return await self._store.write(lambda conn: users.delete_token(conn, token_id))

    def render(self, row: TokenRow) -> str:
        """The token of a row: the same every time."""
        if len(row.id) == _HEX_ID_LENGTH:
            return row.id + self._hex_signature(row.id)
        payload: dict[str, object] = {
            "username": row.username,
            "application": row.kind == "application",
            "jobSpecific": False,
            "jti": row.id,
            "iat": row.created_ms // 1000,
        }
        if row.expires_ms is not None:
            payload["exp"] = row.expires_ms // 1000
        return jwt.encode(payload, self._key)

    def of_job(self, job: JobRow) -> str:
        """The token of the tasks of a job's current attempt."""
        payload = {
            "username": job.username,
            "application": False,
            "jobSpecific": True,
            "jti": job_token_id(job.id, job.attempt),
            "iat": job.created_ms // 1000,
        }
        return jwt.encode(payload, self._key)

    def payload(self, token: str) -> dict[str, object] | None:
        """The payload, if the signature is valid; expiry and revocation are not checked."""
        return jwt.decode(token, self._key)

    def token_id(self, token: str) -> str | None:
        if _HEX_TOKEN.fullmatch(token):
            token_id, signature = token[:_HEX_ID_LENGTH], token[_HEX_ID_LENGTH:]
            return token_id if hmac.compare_digest(signature, self._hex_signature(token_id)) else None
        payload = self.payload(token)
        return None if payload is None else str(payload.get("jti"))

    def _hex_signature(self, token_id: str) -> str:
        signed = f"{PADDLECLOUD}:{token_id}".encode()
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()[: _HEX_LENGTH - _HEX_ID_LENGTH]

    async def _look_up(self, token: str) -> tuple[Identity, float]:
        token_id = self.token_id(token)
        if token_id is None:
            raise Unauthorized(INVALID)
        before = self._revocations
        identified = await self._store.read(lambda conn: _identity(conn, token_id))
        if identified is None:
            raise Unauthorized(INVALID, hint="It has expired or was revoked: log in again.")
        if before == self._revocations:
            if len(self._known) >= _MAX_CACHE_ENTRIES:
                self._known.clear()
                self._token_of.clear()
            self._known[token] = identified
            self._token_of[token_id] = token
        return identified

    def _forget(self, token_id: str) -> None:
        self._revocations += 1
        token = self._token_of.pop(token_id, None)
        if token is not None:
            self._known.pop(token, None)
        self._live.pop(token_id, None)
        for on_change in self._watches.get(token_id, ()):
            on_change()


class TokensWithLocalAdmin(Tokens):
    """Tokens of a cluster that also accepts those of `local_admin`."""

    async def _look_up(self, token: str) -> tuple[Identity, float]:
        payload = self.payload(token)
        if payload is None or not local_admin.is_local_admin(payload):
            return await super()._look_up(token)
        expires = local_admin.valid_until(payload)
        if expires is None:
            raise Unauthorized(INVALID)
        username = str(payload.get("username"))

        def identity(conn: Connection) -> Identity:
            access = replace(groups.access_of(conn, username), admin=True)
            return Identity(username, True, TokenKind.LOGIN, None, str(payload.get("jti")), access)

        return await self._store.read(identity), float(expires)


def new_token_row(username: str, kind: Kind, *, name: str = "", login_s: int = LOGIN_S) -> TokenRow:
    """A new row, for callers that insert it in a transaction of their own."""
    created_ms = int(time.time() * 1000)
    expires_ms = created_ms + login_s * 1000 if kind == "session" else None
    # Hexadecimal: no leading "-" that a command line could take for an option.
    return TokenRow(secrets.token_hex(16), username, kind, name, created_ms, expires_ms)


def kind_of(row: TokenRow) -> TokenKind:
    # Users choose the names of application tokens only.
    if row.kind == "session" and row.name == DELEGATION:
        return TokenKind.DELEGATION
    return TokenKind(row.kind)


_JOB_TOKEN = re.compile(r"job-(\d+)-(\d+)")


def _expiry_of(conn: Connection, holder: str) -> float:
    """When the token with this id expires, in seconds since the epoch; 0 when it is not valid."""
    if holder.startswith(local_admin.CLAIM):
        return math.inf  # it cannot be revoked
    if holder.startswith(CERTIFICATE_HOLDER):
        record = user_records.find_record(
            conn, user_records.CERTIFICATE, holder.removeprefix(CERTIFICATE_HOLDER)
        )
        if record is None or (user := users.get_user(conn, record.username)) is None:
            return 0.0
        return record.certificate_expires_s if user.disabled_ms is None else 0.0
    if holder.startswith("@"):
        username = holder.lstrip("@")
        user = users.get_user(conn, username)
        if user is None or user.disabled_ms is not None:
            return 0.0
        is_live = holder != admin_holder_id(username) or groups.access_of(conn, username).admin
        return math.inf if is_live else 0.0
    try:
        identified = _identity(conn, holder)
    except DisabledUser:
        return 0.0
    return 0.0 if identified is None else identified[1]


def _identity(conn: Connection, token_id: str) -> tuple[Identity, float] | None:
    """The caller of a token and when it expires; None if it is not valid. Raises DisabledUser."""
    if of_job := _JOB_TOKEN.fullmatch(token_id):
        job = jobs.get_job_by_id(conn, int(of_job[1]))
        if job is None or job.attempt != int(of_job[2]) or job.sub_state in ("AttemptCompleted", "Completed"):
            return None
        user = users.get_user(conn, job.username)
        if user is None:
            return None
        # A job acts for its user, but never as an administrator.
        access = groups.access_of(conn, job.username)
        is_disabled = user.disabled_ms is not None
        return Identity(job.username, False, TokenKind.JOB, job.id, token_id, access, is_disabled), math.inf
    row = users.get_token(conn, token_id)
    user = None if row is None else users.get_user(conn, row.username)
    if row is None or user is None:
        return None
    if user.disabled_ms is not None:
        raise DisabledUser(user.username)
    expires = float("inf") if row.expires_ms is None else row.expires_ms / 1000
    access = groups.access_of(conn, row.username)
    return Identity(row.username, access.admin, kind_of(row), None, row.id, access), expires
