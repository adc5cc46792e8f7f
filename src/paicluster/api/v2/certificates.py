"""Routes of users' certificates: an administrator issues and revokes them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import authenticate, context
from paicluster.api.responses import json_response
from paicluster.auth.users import user_not_found
from paicluster.store import users


async def issue(request: Request) -> Response:
    """A new certificate with its key, which is shown this once."""
    await authenticate(request)
    username = await _user(request)
    issued = await context(request).certificates.issue(username)
    body = {
        "certificate": issued.certificate,
        "key": issued.key,
        "serial": issued.serial,
        "expires": issued.expires_ms,
    }
    return json_response(body, 201)


async def revoke(request: Request) -> Response:
    """Revoke all certificates of a user."""
    await authenticate(request)
    username = await _user(request)
    count = await context(request).certificates.revoke(username)
    number = "1 certificate" if count == 1 else f"{count} certificates"
    return json_response({"message": f"Revoked {number} of user {username}."})


async def _user(request: Request) -> str:
    username: str = request.path_params["user"]
    if await context(request).store.read(lambda conn: users.get_user(conn, username)) is None:
        raise user_not_found(username)
    return username
