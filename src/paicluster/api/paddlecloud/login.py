"""Login of PaddleCloud's clients: one token for each user, the same at every login."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, PaiError, TooManyRequests
from paicluster.api.context import context
from paicluster.api.dialect import CERTIFICATE_EXTENSION
from paicluster.api.paddlecloud.replies import error_reply, paddle_route
from paicluster.api.request_fields import Fields
from paicluster.api.responses import MAX_ANONYMOUS_BYTES, form_or_json, json_response
from paicluster.auth import users
from paicluster.auth.tokens import Identity

# Django's message, which clients know.
_REFUSED = "Unable to log in with provided credentials."


async def api_token_auth(request: Request) -> Response:
    """The caller's token. The Go client keeps it for ever, so it is the same after a restart."""
    throttle = context(request).policies.login_throttle
    try:
        return await throttle.wrap(_issue)(request)
    except TooManyRequests as error:
        return error_reply(error)
    except PaiError as error:
        known = error.code in ("NoUserError", "IncorrectPasswordError")
        return json_response({"non_field_errors": [_REFUSED if known else error.message]}, 400)


async def _issue(request: Request) -> Response:
    fields = Fields(await form_or_json(request, MAX_ANONYMOUS_BYTES))
    username, password = fields.text("username", min_length=1), fields.text("password")
    presented = request.scope.get("extensions", {}).get(CERTIFICATE_EXTENSION)
    if presented is not None and presented.username != username:
        # Requests with that certificate and the token would be refused.
        raise InvalidParameters(
            f"The certificate is that of user {presented.username}, the password that of {username}. "
            "Send only one of them."
        )
    ctx = context(request)
    user = await users.login(ctx.store, username, password)
    return json_response({"token": await ctx.tokens.paddlecloud_token(user.username)})


@paddle_route
async def token2user(request: Request, identity: Identity) -> Response:
    return json_response({"user": identity.username})
