"""Routes of server info, login and tokens."""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate, caller, token_of
from paicluster.api.routing.authority import ACCOUNT, CLUSTER, PUBLIC
from paicluster.api.routing.route import (
    MAX_ANONYMOUS_BYTES,
    PAGE,
    Body,
    Query,
    Rate,
    Routes,
    Text,
)
from paicluster.api.v2.task_logs import ANY_LOG
from paicluster.api.wire.base import Message
from paicluster.api.wire.query_parameters import page_params
from paicluster.api.wire.users import (
    ApplicationToken,
    AuthnInfo,
    Info,
    LoginBody,
    LoginResult,
    LogToken,
    NewApplicationToken,
    TokenDetails,
    TokenList,
    TokenPayload,
)
from paicluster.auth import users
from paicluster.store.rows import TokenRow
from paicluster.store.writer import user_holder_id
from paiprotocol.errors import Forbidden

route = Routes("token")

_MAX_NAME_LENGTH = 255
_LOGIN = Body(limit=MAX_ANONYMOUS_BYTES, may_be_empty=False)


@route(
    "GET|POST|PUT|DELETE /api/v2",
    authority=PUBLIC,
    summary="Banner of API version 2",
    tag="api",
    returns={200: Text()},
)
async def banner(request: Request) -> Response:
    return PlainTextResponse("PAI RESTful API v2 (beta version)")


@route(
    "GET|POST|PUT|DELETE /api/v2/info",
    "GET|POST|PUT|DELETE /api/v1",
    authority=PUBLIC,
    summary="Name, version and login method of the cluster",
    tag="api",
)
async def info(request: Request) -> Info:
    ctx = context(request)
    return Info(
        name="PAI RESTful API",
        version=ctx.server.version,
        launcher_type="k8s",
        authn_method="basic",
        # Our addition: whether jobs run in the image they name, or on the host.
        containers=ctx.engines.runs_images(),
        # Our addition: the largest source archive of a job.
        max_sources_bytes=ctx.server.policies.max_sources_bytes,
    )


@route(
    "GET /api/(v2|v1)/authn/info",
    authority=PUBLIC,
    summary="How to log in",
    tag="authn",
)
async def authn_info(request: Request) -> AuthnInfo:
    version = "v1" if request.url.path.startswith("/api/v1") else "v2"
    return AuthnInfo("basic", login_uri=f"/api/{version}/authn/basic/login", login_method="post")


@route(
    "POST /api/v2/authn/basic/login",
    "POST /api/v1/token",
    "POST /api/v1/authn/basic/login",
    authority=PUBLIC,
    summary="Log in",
    tag="authn",
    body=_LOGIN,
    errors=(401,),
    rate=Rate.LOGINS,
)
async def login(request: Request, body: LoginBody) -> LoginResult:
    ctx = context(request)
    user = await users.login(ctx.store, body.username, body.password)
    token = await ctx.identity.tokens.issue(user.username, "session")
    has_pat = "githubPAT" in json.loads(user.extension)
    return LoginResult(user.username, token, user.admin, has_pat)


@route(
    "POST /log-manager/{node}/api/v1/tokens",
    authority=PUBLIC,
    summary="Issue a token for the log manager",
    tag="log",
    body=_LOGIN,
    errors=(401,),
    rate=Rate.LOGINS,
)
async def log_token(request: Request, body: LoginBody) -> LogToken:
    """Token for all logs, valid for two minutes; for clients of OpenPAI's log manager."""
    ctx = context(request)
    user = await users.login(ctx.store, body.username, body.password)
    return LogToken(ctx.identity.tickets.issue(ANY_LOG, holder=user_holder_id(user.username)))


@route(
    "DELETE /api/(v2|v1)/authn/basic/logout",
    authority=ACCOUNT,
    summary="Log out: revoke the token",
    tag="authn",
)
async def logout(request: Request) -> Message:
    await authenticate(request)
    await context(request).identity.tokens.revoke(token_of(request)[0])
    return Message("Logout successfully")


@route(
    "GET /api/v2/tokens",
    "GET /api/v1/token",
    authority=ACCOUNT,
    summary="List the caller's tokens",
    query=(
        Query("details", description="With kind, name and times of each token; `only`: without the tokens."),
        *PAGE,
    ),
)
async def list_tokens(request: Request) -> TokenList:
    """Tokens of the caller. Our additions: paging, and ``details`` with kind, name and times of each.

    ``details=only`` leaves out the tokens themselves: a page that shows the list need not have them.
    """
    identity = await authenticate(request)
    tokens = context(request).identity.tokens
    offset, limit = page_params(request)
    rows = await tokens.rows(identity.username, offset=offset, limit=limit)
    details = request.query_params.get("details")
    return TokenList(
        tokens=[] if details == "only" else [tokens.render(row) for row in rows],
        details=UNSET if details is None else [_details(row) for row in rows],
    )


def _details(row: TokenRow) -> TokenDetails:
    return TokenDetails(row.id, row.name, row.kind == "application", row.created_ms, row.expires_ms)


@route(
    "POST /api/v2/tokens/application",
    "POST /api/v1/token/application",
    authority=ACCOUNT,
    summary="Issue an application token",
    body=Body(required=False),
)
async def application_token(request: Request, body: NewApplicationToken) -> ApplicationToken:
    token = await context(request).identity.tokens.issue(
        caller(request).username,
        "application",
        name=(body.name or "")[:_MAX_NAME_LENGTH],
        lifetime_s=None if body.expiration is UNSET else int(body.expiration),
    )
    return ApplicationToken(token, application=True)


@route(
    "GET /api/v2/tokens/check",
    "GET /api/v1/token/check",
    authority=CLUSTER,
    summary="Check a token",
)
async def check_token(request: Request) -> TokenPayload:
    identity = await authenticate(request)
    signed = context(request).identity.tokens.payload(token_of(request)[0]) or {"username": identity.username}
    known = {key: signed[key] for key in TokenPayload.__struct_encode_fields__ if key in signed}
    return msgspec.convert({**known, "admin": identity.admin}, TokenPayload)


@route(
    "DELETE /api/v2/tokens/{token}",
    "DELETE /api/v1/token/{token}",
    authority=ACCOUNT,
    summary="Revoke a token",
)
async def revoke_token(request: Request) -> Message:
    """Revoke a token, given itself or its id."""
    identity = await authenticate(request)
    tokens = context(request).identity.tokens
    token = request.path_params["token"]
    row = await tokens.find(token)
    if row is not None and row.username != identity.username and not identity.admin:
        raise Forbidden(f"User {identity.username} is not allowed to do this operation.")
    await tokens.revoke(token)
    return Message("revoke successfully")
