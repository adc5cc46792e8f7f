"""Permission checks of the routes, on top of `context.authenticate`."""

from __future__ import annotations

from starlette.requests import Request

from openpaisdk.errors import Forbidden
from paicluster.api.context import authenticate, authenticate_user, context
from paicluster.auth.tokens import Identity
from paicluster.store.rows import JobRow, UserGrants

# OpenPAI's messages, which clients compare.
NOT_ADMIN = "Non-admin is not allow to do this operation."
NOT_SELF = "Can't update other user's data"

# Caller of version 1 without a token, where the settings allow anonymous reads.
ANONYMOUS = Identity("", False, False, None, "", UserGrants(False, (), frozenset(), ()))


async def authenticate_reader(request: Request) -> Identity:
    """Identity of a caller that reads through version 1; `ANONYMOUS` without a token, if that is allowed.

    Early OpenPAI clients send no token when they only read.
    """
    if context(request).anonymous_v1_reads and "authorization" not in request.headers:
        return ANONYMOUS
    return await authenticate(request)


async def authenticate_admin(request: Request) -> Identity:
    """Identity of an administrator; application tokens and job tokens are refused."""
    return _require_admin(await authenticate_user(request))


async def authenticate_any_admin(request: Request) -> Identity:
    """Identity of an administrator, by any kind of token; for operations that only read."""
    return _require_admin(await authenticate(request))


async def authenticate_self_or_admin(request: Request, username: str) -> Identity:
    identity = await authenticate_user(request)
    if identity.username != username and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    return identity


def _require_admin(identity: Identity) -> Identity:
    if not identity.admin:
        raise Forbidden(NOT_ADMIN)
    return identity


def check_may_see(identity: Identity, row: JobRow) -> None:
    """Users see all jobs. A job token sees only jobs of its own user, since a task may run untrusted code."""
    if identity.job_id is not None and identity.username != row.username:
        raise Forbidden(f"A job of user {identity.username} is not allowed to see job {row.framework}.")


def check_owner_or_admin(identity: Identity, row: JobRow, verb: str) -> None:
    if identity.username != row.username and not identity.admin:
        raise Forbidden(
            f"User {identity.username} is not allowed to {verb} job {row.framework}.",
            hint=f"Only {row.username} and administrators are allowed.",
        )
