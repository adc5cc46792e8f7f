"""Permission checks that depend on the job or user of a request, on top of `context.authenticate`.

Which kinds of tokens a route accepts, and whether from administrators only, is declared in
`route_authorities`.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from openpaisdk.errors import Forbidden
from paicluster.api.authority import NOT_ADMIN
from paicluster.api.context import authenticate, context
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.store.job_query import JobQuery
from paicluster.store.rows import JobRow, UserGrants

# OpenPAI's message, which clients compare.
NOT_SELF = "Can't update other user's data"

# Caller of version 1 without a token, where the settings allow anonymous reads.
ANONYMOUS = Identity("", False, TokenKind.SESSION, None, "", UserGrants(False, (), frozenset(), ()))


async def authenticate_reader(request: Request) -> Identity:
    """Identity of a caller that reads through version 1; `ANONYMOUS` without a token, if that is allowed.

    Early OpenPAI clients send no token when they only read.
    """
    if context(request).anonymous_v1_reads and "authorization" not in request.headers:
        return ANONYMOUS
    return await authenticate(request)


async def authenticate_self_or_admin(request: Request, username: str) -> Identity:
    identity = await authenticate(request)
    if identity.username != username and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    return identity


def check_may_see(identity: Identity, row: JobRow) -> None:
    """Users see all jobs. A job token sees only jobs of its own user, since a task may run untrusted code."""
    if identity.job_id is not None and identity.username != row.username:
        raise Forbidden(f"A job of user {identity.username} is not allowed to see job {row.framework}.")


def visible_jobs(identity: Identity, query: JobQuery) -> JobQuery:
    """The listing query, restricted to what the caller may see (as `check_may_see`)."""
    if identity.job_id is None:
        return query
    others = [name for name in query.username if name != identity.username]
    if others:
        raise Forbidden(
            f"A job of user {identity.username} is not allowed to list jobs of {', '.join(others)}."
        )
    return replace(query, username=(identity.username,))


def check_owner_or_admin(identity: Identity, row: JobRow, verb: str) -> None:
    if identity.username != row.username and not identity.admin:
        raise Forbidden(
            f"User {identity.username} is not allowed to {verb} job {row.framework}.",
            hint=f"Only {row.username} and administrators are allowed.",
        )
