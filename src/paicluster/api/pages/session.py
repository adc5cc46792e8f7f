"""Cookie sessions of the pages. Only pages read the cookie, so another site cannot call the API with it."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openpaisdk.errors import InvalidParameters, PaiError, Unauthorized
from paicluster.api.context import accept, authenticate, context, own_url
from paicluster.api.middleware.audit import set_subject
from paicluster.api.pages.html import Html, element, page
from paicluster.api.responses import MAX_ANONYMOUS_BYTES, mapping_of, read_body
from paicluster.auth import users
from paicluster.auth.tokens import Identity, Tokens

COOKIE = "paicluster"
_TOKEN_NAME = "a browser"


async def session_user(request: Request) -> Identity | None:
    """Identity of the signed-in user; None without a valid session."""
    if "authorization" in request.headers:
        return await authenticate(request)
    token = request.cookies.get(COOKIE)
    if not token:
        return None
    try:
        identity = await context(request).tokens.verify(token)
    except Unauthorized:
        return None
    accept(request, identity)
    return identity


async def handle_login_form(request: Request) -> Response:
    """Sign in with a password or a token, or sign out; then redirect to the page."""
    form = mapping_of(request, await read_body(request, MAX_ANONYMOUS_BYTES))
    ctx = context(request)
    if form.get("leave"):
        await _end_session(ctx.tokens, request.cookies.get(COOKIE, ""))
        return _redirect_back(request, "")
    token, username, password = (str(form.get(key) or "") for key in ("token", "username", "password"))
    if token:
        accept(request, await ctx.tokens.verify(token.strip()))
        return _redirect_back(request, token.strip())
    if not username or not password:
        raise InvalidParameters("Enter a user name and a password, or a token.")
    set_subject(request, username)
    async with ctx.policies.login_throttle.attempt(request, username):
        user = await users.login(ctx.store, username, password)
    return _redirect_back(request, await ctx.tokens.issue(user.username, "session", name=_TOKEN_NAME))


async def _end_session(tokens: Tokens, token: str) -> None:
    """Revoke a session that a page created; a token that the user entered is used elsewhere too."""
    row = await tokens.find(token) if tokens.token_id(token) else None
    if row is not None and (row.kind, row.name) == ("session", _TOKEN_NAME):
        await tokens.revoke(token)


def _redirect_back(request: Request, token: str) -> Response:
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
    """Login page. It reveals nothing about the job."""
    error_line = None if error is None else element("p", element("strong", error.message))

    def field(label: str, name: str, kind: str, complete: str) -> Html:
        return element(
            "label", label, element("br"), element("input", name=name, type=kind, autocomplete=complete)
        )

    return page(
        title,
        element("h1", title),
        error_line,
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
