"""Routes of users' certificates: an administrator issues and revokes them."""

from __future__ import annotations

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMINISTRATION
from paicluster.api.routing.route import Routes
from paicluster.api.wire.base import Message
from paicluster.api.wire.users import UserCertificate
from paicluster.auth.users import user_not_found
from paicluster.store import users

route = Routes("user")


@route(
    "POST /api/v2/(users|user)/{user}/certificates",
    authority=ADMINISTRATION,
    summary="Issue a certificate of a user",
    status=201,
    errors=(400,),
)
async def issue(request: Request) -> UserCertificate:
    """A new certificate with its key, which is shown this once."""
    await authenticate(request)
    username = await _user(request)
    issued = await context(request).identity.certificates.issue(username)
    return UserCertificate(issued.certificate, issued.key, issued.serial, issued.expires_ms)


@route(
    "DELETE /api/v2/(users|user)/{user}/certificates",
    authority=ADMINISTRATION,
    summary="Revoke all certificates of a user",
)
async def revoke(request: Request) -> Message:
    """Revoke all certificates of a user."""
    await authenticate(request)
    username = await _user(request)
    count = await context(request).identity.certificates.revoke(username)
    number = "1 certificate" if count == 1 else f"{count} certificates"
    return Message(f"Revoked {number} of user {username}.")


async def _user(request: Request) -> str:
    username: str = request.path_params["user"]
    if await context(request).store.read(lambda conn: users.get_user(conn, username)) is None:
        raise user_not_found(username)
    return username
