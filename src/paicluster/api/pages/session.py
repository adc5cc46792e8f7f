"""Who looks at a page: a cookie that only pages read says it, so that no other site can act with it."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openpaisdk.errors import InvalidParameters, PaiError, Unauthorized
from paicluster.api.context import authenticate, context, own_url
from paicluster.api.middleware.audit import set_subject
from paicluster.api.pages.html import Html, element, page
from paicluster.api.responses import mapping_of, read_body
from paicluster.auth import users
from paicluster.auth.tokens import Identity, Tokens

COOKIE = "paicluster"
_NAME = "a browser"


async def session_user(request: Request) -> Identity | None:
    """Whoever looks at a page; nobody when he has not signed in, or that is over."""
    if "authorization" in request.headers:
        return await authenticate(request)
    token = request.cookies.get(COOKIE)
    if not token:
        return None
    try:
        return await context(request).tokens.verify(token)
    except Unauthorized:
        return None


async def handle_login_form(request: Request) -> Response:
    """Sign somebody in with his password or a token, or out; then back to the page."""
    given = mapping_of(request, await read_body(request, 1 << 16))
    ctx = context(request)
    if given.get("leave"):
        await _end_session(ctx.tokens, request.cookies.get(COOKIE, ""))
        return _back(request, "")
    token, username, password = (str(given.get(key) or "") for key in ("token", "username", "password"))
    if token:
        await ctx.tokens.verify(token.strip())
        return _back(request, token.strip())
    if not username or not password:
        raise InvalidParameters("Give a user name and a password, or a token.")
    set_subject(request, username)
    async with ctx.policies.logins.attempt(request, username):
        user = await users.login(ctx.store, username, password)
    return _back(request, await ctx.tokens.issue(user.username, "session", name=_NAME))


async def _end_session(tokens: Tokens, token: str) -> None:
    """Only what a page itself gave out: a token that somebody brought is used elsewhere, too."""
    row = await tokens.find(token) if tokens.token_id(token) else None
    if row is not None and (row.kind, row.name) == ("session", _NAME):
        await tokens.revoke(token)


def _back(request: Request, token: str) -> Response:
    own = urlsplit(own_url(request))
    path = f"{own.path.rstrip('/')}{request.url.path}"
    response = RedirectResponse(path + (f"?{request.url.query}" if request.url.query else ""), 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=None if token else 0,
        path=path,
        secure=own.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


def sign_in_page(title: str, *more: object, error: PaiError | None = None) -> Response:
    """Asks who is there. It says nothing of what there is to see."""
    complaint = None if error is None else element("p", element("strong", error.message))

    def field(label: str, name: str, kind: str, complete: str) -> Html:
        return element(
            "label", label, element("br"), element("input", name=name, type=kind, autocomplete=complete)
        )

    return page(
        title,
        element("h1", title),
        complaint,
        element("p", "Sign in to see it."),
        element(
            "form",
            field("User", "username", "text", "username"),
            field("Password", "password", "password", "current-password"),
            element("p", "or, instead of both,", class_="quiet"),
            field("Token", "token", "password", "off"),
            element("button", "Sign in"),
            method="post",
        ),
        *more,
        status=200 if error is None else error.status,
    )


def sign_out_form(identity: Identity) -> Html:
    return element(
        "form",
        element("span", identity.username, " ", class_="quiet"),
        element("button", "Sign out", name="leave", value="yes"),
        method="post",
    )
