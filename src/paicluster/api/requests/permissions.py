"""Permission checks that depend on the job or user of a request, on top of `authentication.authenticate`.

Which kinds of tokens a route accepts, and whether from administrators only, is declared with it.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import NOT_ADMIN
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.store.job_query import JobQuery
from paicluster.store.rows import JobRow, UserGrants
from paiprotocol.errors import Forbidden

# OpenPAI's message, which clients compare.
NOT_SELF = "Can't update other user's data"

# Caller of version 1 without a token, where the settings allow anonymous reads.
ANONYMOUS = Identity("", False, TokenKind.LOGIN, None, "", UserGrants(False, (), frozenset(), ()))


async def authenticate_reader(request: Request) -> Identity:
    """Identity of a caller that reads through version 1; `ANONYMOUS` without a token, if that is allowed.

    Early OpenPAI clients send no token when they only read.
    """
    if context(request).identity.anonymous_v1_reads and "authorization" not in request.headers:
        return ANONYMOUS
    return await authenticate(request)


async def self_or_admin(request: Request) -> None:
    """Guard of routes of the user in the path, for that user and for administrators."""
    identity = await authenticate(request)
    if identity.username != request.path_params["user"] and not identity.admin:
        raise Forbidden(NOT_ADMIN)


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
