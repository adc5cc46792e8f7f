"""Routes of server info, login and tokens."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from openpaisdk.errors import Forbidden
from paicluster.api.context import authenticate, context, token_of
from paicluster.api.request_fields import Fields, fields_of
from paicluster.api.responses import MAX_ANONYMOUS_BYTES, form_or_json, json_response, page_params
from paicluster.api.v2.task_logs import ANY_LOG
from paicluster.auth import users
from paicluster.auth.tokens import SESSION_S
from paicluster.store.rows import TokenRow, UserRow
from paicluster.store.writer import user_holder_id

_MAX_NAME_LENGTH = 255
_MIN_LIFETIME_S = 60
# A token for longer than ten years may as well have no end.
_MAX_LIFETIME_S = 10 * 366 * 24 * 3600


async def banner(request: Request) -> Response:
    return PlainTextResponse("PAI RESTful API v2 (beta version)")


async def info(request: Request) -> Response:
    return json_response(
        {
            "name": "PAI RESTful API",
            "version": context(request).version,
            "launcherType": "k8s",
            "authnMethod": "basic",
            # Our addition: whether jobs run in the image they name, or on the host.
            "containers": context(request).runs_images(),
            # Our addition: the largest source archive of a job.
            "maxSourcesBytes": context(request).policies.max_sources_bytes,
        }
    )


async def authn_info(request: Request) -> Response:
    version = "v1" if request.url.path.startswith("/api/v1") else "v2"
    login_path = f"/api/{version}/authn/basic/login"
    return json_response({"authn_type": "basic", "loginURI": login_path, "loginURIMethod": "post"})


async def login(request: Request) -> Response:
    ctx = context(request)
    user = await _check_login(request)
    token = await ctx.tokens.issue(user.username, "session")
    has_pat = "githubPAT" in json.loads(user.extension)
    return json_response(
        {"user": user.username, "token": token, "admin": user.admin, "hasGitHubPAT": has_pat}
    )


async def log_token(request: Request) -> Response:
    """Token for all logs, valid for two minutes; for clients of OpenPAI's log manager."""
    user = await _check_login(request)
    ticket = context(request).tickets.issue(ANY_LOG, holder=user_holder_id(user.username))
    return json_response({"token": ticket})


async def _check_login(request: Request) -> UserRow:
    body = await form_or_json(request, MAX_ANONYMOUS_BYTES)
    fields = Fields(body)
    username = fields.text("username", min_length=1)
    password = fields.text("password", min_length=users.MIN_PASSWORD_LENGTH)
    if "expiration" in fields:
        # Validated and then ignored, as in OpenPAI: the cluster decides how long a session lasts.
        fields.number("expiration", minimum=60, maximum=SESSION_S)
    return await users.login(context(request).store, username, password)


async def logout(request: Request) -> Response:
    await authenticate(request)
    await context(request).tokens.revoke(token_of(request)[0])
    return json_response({"message": "Logout successfully"})


async def list_tokens(request: Request) -> Response:
    """Tokens of the caller. Our additions: paging, and ``details`` with kind, name and times of each.

    ``details=only`` leaves out the tokens themselves: a page that shows the list need not have them.
    """
    identity = await authenticate(request)
    tokens = context(request).tokens
    offset, limit = page_params(request)
    rows = await tokens.rows(identity.username, offset=offset, limit=limit)
    details = request.query_params.get("details")
    body: dict[str, Any] = {"tokens": [] if details == "only" else [tokens.render(row) for row in rows]}
    if details is not None:
        body["details"] = [_details(row) for row in rows]
    return json_response(body)


def _details(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "application": row.kind == "application",
        "createdTime": row.created_ms,
        "expirationTime": row.expires_ms,
    }


async def application_token(request: Request) -> Response:
    """Issue an application token. Our additions: ``name`` identifies it later, and it is valid for
    ``expiration`` seconds."""
    identity = await authenticate(request)
    fields = await fields_of(request)
    name = fields.text("name", "")[:_MAX_NAME_LENGTH]
    lifetime_s = None
    if "expiration" in fields:
        lifetime_s = int(fields.number("expiration", minimum=_MIN_LIFETIME_S, maximum=_MAX_LIFETIME_S))
    token = await context(request).tokens.issue(
        identity.username, "application", name=name, lifetime_s=lifetime_s
    )
    return json_response({"token": token, "application": True})


async def check_token(request: Request) -> Response:
    identity = await authenticate(request)
    payload = context(request).tokens.payload(token_of(request)[0]) or {"username": identity.username}
    return json_response({**payload, "admin": identity.admin})


async def revoke_token(request: Request) -> Response:
    """Revoke a token, given itself or its id."""
    identity = await authenticate(request)
    tokens = context(request).tokens
    token = request.path_params["token"]
    row = await tokens.find(token)
    if row is not None and row.username != identity.username and not identity.admin:
        raise Forbidden(f"User {identity.username} is not allowed to do this operation.")
    await tokens.revoke(token)
    return json_response({"message": "revoke successfully"})
