"""Routes of logins in browsers: sign in with a password or a one-time link, sign out."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

from msgspec import UNSET
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.identity import browser_login
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.own_url import own_url
from paicluster.api.requests.web_socket_upgrade import check_own_origin
from paicluster.api.routing.authority import ACCOUNT, CLUSTER, PUBLIC
from paicluster.api.routing.route import MAX_ANONYMOUS_BYTES, Body, Query, Routes
from paicluster.api.wire.base import Message
from paicluster.api.wire.responses import Reply
from paicluster.api.wire.users import BrowserSession, BrowserSignIn, SignInLink
from paicluster.auth import users
from paicluster.auth.tokens import TokenKind
from paiprotocol.errors import Forbidden, InvalidParameters, Unauthorized

route = Routes("authn")


async def _check_own_page(request: Request) -> None:
    """Raise Forbidden for pages of other sites, which could replace a login by one of their own."""
    site = request.headers.get("sec-fetch-site")
    if site is None and "origin" in request.headers:
        # Over HTTP, except to localhost, a browser says no more than this.
        check_own_origin(request)
    elif site not in (None, "same-origin", "none"):
        raise Forbidden("Only pages of this cluster may start a session.")


@route(
    "POST /api/v2/authn/session",
    authority=PUBLIC,
    summary="Start a session in a browser, with a password or the code of a one-time link; sets a cookie",
    body=Body(limit=MAX_ANONYMOUS_BYTES, may_be_empty=False),
    guard=_check_own_page,
    errors=(401, 403),
    other_methods=405,
)
async def sign_in(request: Request, body: BrowserSignIn) -> Reply[BrowserSession]:
    """Log in with ``username`` and ``password``, or with the ``code`` of a one-time link."""
    ctx = context(request)
    if body.code is not UNSET:
        link = ctx.identity.sign_in_links.redeem(body.code)
        if not await ctx.identity.tokens.is_live(link.token_id):
            raise Unauthorized("The sign-in link is no longer valid.", hint="Type `pai open` for a new one.")
        username = link.username
        set_subject(request, username)
    else:
        if not body.username or not body.password:
            raise InvalidParameters("Enter a user name and a password.")
        set_subject(request, body.username)
        async with ctx.server.policies.login_throttle.attempt(request, body.username):
            username = (await users.login(ctx.store, body.username, body.password)).username
    token = await ctx.identity.tokens.issue(username, "session", name=browser_login.TOKEN_NAME)
    identity = await ctx.identity.tokens.verify(token)
    cookie, proof = browser_login.split_token(token)
    headers = browser_login.cookie_headers(own_url(request), cookie)
    return Reply(BrowserSession(username, identity.admin, proof), headers=headers)


@route(
    "DELETE /api/v2/authn/session",
    authority=ACCOUNT,
    summary="End the session of this browser, or of all browsers",
    query=(Query("everywhere", Literal["true", "false"]),),
    other_methods=405,
)
async def sign_out(request: Request) -> Reply[Message]:
    """End the caller's login; with ``everywhere=true`` those in all browsers."""
    identity = await authenticate(request)
    tokens = context(request).identity.tokens
    ended = [identity.token_id]
    if request.query_params.get("everywhere") == "true":
        rows = await tokens.rows(identity.username)
        ended += [row.id for row in rows if (row.kind, row.name) == ("session", browser_login.TOKEN_NAME)]
    for token_id in dict.fromkeys(ended):
        await tokens.revoke(token_id)
    headers = browser_login.cookie_headers(own_url(request), "")
    return Reply(Message("Signed out."), headers=headers)


@route(
    "POST /api/v2/authn/links",
    authority=CLUSTER,
    summary="Issue a link that signs one browser in, once",
    other_methods=405,
)
async def issue_link(request: Request) -> SignInLink:
    """Issue a link that signs one browser in, once."""
    identity = await authenticate(request)
    ctx = context(request)
    set_subject(request, identity.username)
    # A login may do more than an application token. A user without a password, that of an embedded
    # cluster, has no other way to get one.
    if identity.kind is not TokenKind.LOGIN and await users.has_password(ctx.store, identity.username):
        raise Forbidden(
            "An application token does not open a session in a browser.",
            hint="Sign in to the portal with your password.",
        )
    code = ctx.identity.sign_in_links.issue(identity.username, identity.token_id)
    # In the fragment, which browsers do not send: no proxy or log sees it.
    return SignInLink(f"{own_url(request)}/#/sign-in?{urlencode({'code': code})}")
