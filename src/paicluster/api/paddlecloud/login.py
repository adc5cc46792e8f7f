"""Login of PaddleCloud's clients: one token for each user, the same at every login."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.paddlecloud.replies import replying
from paicluster.api.requests.authentication import caller
from paicluster.api.routing.authority import CLUSTER, PUBLIC
from paicluster.api.routing.dialect import CERTIFICATE_EXTENSION
from paicluster.api.routing.route import MAX_ANONYMOUS_BYTES, Body, Handler, Routes
from paicluster.api.wire.paddlecloud import (
    PaddleLogin,
    PaddleLoginProblem,
    PaddleToken,
    PaddleUnauthorized,
    PaddleUser,
)
from paicluster.api.wire.responses import Reply
from paicluster.auth import users
from paiprotocol.errors import InvalidParameters, PaiError, TooManyRequests

route = Routes("paddlecloud", returns={401: PaddleUnauthorized}, around=replying)

# Django's message, which clients know.
_REFUSED = "Unable to log in with provided credentials."


async def _logging_in(handle: Handler, request: Request) -> Any:
    """Log in, unless too many logins failed; errors are Django's."""
    throttle = context(request).server.policies.login_throttle
    try:
        return await throttle.wrap(handle)(request)
    except TooManyRequests:
        raise
    except PaiError as error:
        known = error.code in ("NoUserError", "IncorrectPasswordError")
        return Reply(PaddleLoginProblem([_REFUSED if known else error.message]), 400)


@route(
    "POST /api-token-auth",
    authority=PUBLIC,
    summary="Get the token of a user",
    body=Body(limit=MAX_ANONYMOUS_BYTES, may_be_empty=False),
    around=_logging_in,
    returns={400: PaddleLoginProblem},
)
async def api_token_auth(request: Request, body: PaddleLogin) -> PaddleToken:
    """The caller's token. The Go client keeps it for ever, so it is the same after a restart."""
    presented = request.scope.get("extensions", {}).get(CERTIFICATE_EXTENSION)
    if presented is not None and presented.username != body.username:
        # Requests with that certificate and the token would be refused.
        raise InvalidParameters(
            f"The certificate is that of user {presented.username}, the password that of {body.username}. "
            "Send only one of them."
        )
    ctx = context(request)
    user = await users.login(ctx.store, body.username, body.password)
    return PaddleToken(await ctx.identity.tokens.paddlecloud_token(user.username))


@route(
    "GET /api/v1/token2user",
    authority=CLUSTER,
    summary="Get the user of a token",
)
async def token2user(request: Request) -> PaddleUser:
    return PaddleUser(caller(request).username)
