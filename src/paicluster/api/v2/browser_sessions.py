"""Routes of browser sessions: sign in with a password or a one-time link, sign out."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters, Unauthorized
from paicluster.api import browser_session
from paicluster.api.context import authenticate, context, own_url
from paicluster.api.middleware.audit import set_subject
from paicluster.api.request_fields import Fields
from paicluster.api.responses import MAX_ANONYMOUS_BYTES, form_or_json, json_response
from paicluster.auth import users
from paicluster.auth.tokens import TokenKind


async def sign_in(request: Request) -> Response:
    """Start a session with ``username`` and ``password``, or with the ``code`` of a one-time link."""
    # Another site could otherwise replace the user's session by one of its own.
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("Only pages of this cluster may start a session.")
    ctx = context(request)
    fields = Fields(await form_or_json(request, MAX_ANONYMOUS_BYTES))
    if "code" in fields:
        link = ctx.sign_in_links.redeem(fields.text("code"))
        if not await ctx.tokens.is_live(link.token_id):
            raise Unauthorized("The sign-in link is no longer valid.", hint="Type `pai open` for a new one.")
        username = link.username
        set_subject(request, username)
    else:
        username = fields.text("username", "")
        password = fields.text("password", "")
        if not username or not password:
            raise InvalidParameters("Enter a user name and a password.")
        set_subject(request, username)
        async with ctx.policies.login_throttle.attempt(request, username):
            username = (await users.login(ctx.store, username, password)).username
    token = await ctx.tokens.issue(username, "session", name=browser_session.TOKEN_NAME)
    identity = await ctx.tokens.verify(token)
    cookie, proof = browser_session.split_token(token)
    response = json_response({"user": username, "admin": identity.admin, "proof": proof})
    browser_session.set_cookie(response, own_url(request), cookie)
    return response


async def sign_out(request: Request) -> Response:
    """End the caller's session; with ``everywhere=true`` the sessions in all browsers."""
    identity = await authenticate(request)
    tokens = context(request).tokens
    ended = [identity.token_id]
    if request.query_params.get("everywhere") == "true":
        rows = await tokens.rows(identity.username)
        ended += [row.id for row in rows if (row.kind, row.name) == ("session", browser_session.TOKEN_NAME)]
    for token_id in dict.fromkeys(ended):
        await tokens.revoke(token_id)
    response = json_response({"message": "Signed out."})
    browser_session.set_cookie(response, own_url(request), "")
    return response


async def issue_link(request: Request) -> Response:
    """Issue a link that signs one browser in, once."""
    identity = await authenticate(request)
    ctx = context(request)
    set_subject(request, identity.username)
    # A session may do more than an application token. A user without a password, that of an embedded
    # cluster, has no other way to get one.
    if identity.kind is not TokenKind.SESSION and await users.has_password(ctx.store, identity.username):
        raise Forbidden(
            "An application token does not open a session in a browser.",
            hint="Sign in to the portal with your password.",
        )
    code = ctx.sign_in_links.issue(identity.username, identity.token_id)
    # In the fragment, which browsers do not send: no proxy or log sees it.
    return json_response({"url": f"{own_url(request)}/#/sign-in?{urlencode({'code': code})}"})
