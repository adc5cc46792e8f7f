"""Who may do what, beside what `context.identify` tells."""

from __future__ import annotations

from starlette.requests import Request

from openpaisdk.errors import Forbidden
from paicluster.api.context import authenticate, identify_person
from paicluster.auth.tokens import Identity
from paicluster.store.rows import JobRow

# The original's words, which clients compare.
NOT_ADMIN = "Non-admin is not allow to do this operation."
NOT_SELF = "Can't update other user's data"


async def identify_admin(request: Request) -> Identity:
    """An administrator in person: not one of his applications or jobs."""
    return _admin(await identify_person(request))


async def identify_any_admin(request: Request) -> Identity:
    """An administrator, or an application of one, for what only looks."""
    return _admin(await authenticate(request))


async def identify_self_or_admin(request: Request, username: str) -> Identity:
    identity = await identify_person(request)
    if identity.username != username and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    return identity


def _admin(identity: Identity) -> Identity:
    if not identity.admin:
        raise Forbidden(NOT_ADMIN)
    return identity


def may_see(identity: Identity, row: JobRow) -> None:
    """Everybody sees every job; a job, which may run anybody's code, only those of its own user."""
    if identity.job_id is not None and identity.username != row.username:
        raise Forbidden(f"A job of user {identity.username} is not allowed to see job {row.framework}.")


def owner_or_admin(identity: Identity, row: JobRow, verb: str) -> None:
    if identity.username != row.username and not identity.admin:
        raise Forbidden(
            f"User {identity.username} is not allowed to {verb} job {row.framework}.",
            hint=f"Only {row.username} and administrators are.",
        )
