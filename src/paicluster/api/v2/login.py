"""Info, login, tokens."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from openpaisdk.errors import Forbidden
from paicluster.api.context import APPLICATIONS_REFUSED, authenticate, authenticate_user, context, token_of
from paicluster.api.request_fields import Fields, fields_of
from paicluster.api.responses import form_or_json, json_response, page_params
from paicluster.api.v2.task_logs import ANY_LOG
from paicluster.auth import users
from paicluster.auth.tokens import DELEGATION, SESSION_S
from paicluster.store.rows import TokenRow, UserRow

_LONGEST_NAME = 255


async def banner(request: Request) -> Response:
    return PlainTextResponse("PAI RESTful API v2 (beta version)")


async def info(request: Request) -> Response:
    return json_response(
        {
            "name": "PAI RESTful API",
            "version": context(request).version,
            "launcherType": "k8s",
            "authnMethod": "basic",
            # Ours: whether a job runs in the image it names, or on the host all the same.
            "containers": context(request).runs_images(),
        }
    )


async def authn_info(request: Request) -> Response:
    version = "v1" if request.url.path.startswith("/api/v1") else "v2"
    where = f"/api/{version}/authn/basic/login"
    return json_response({"authn_type": "basic", "loginURI": where, "loginURIMethod": "post"})


async def login(request: Request) -> Response:
    ctx = context(request)
    user = await _logged_in(request)
    token = await ctx.tokens.issue(user.username, "session")
    has_pat = "githubPAT" in json.loads(user.extension)
    return json_response(
        {"user": user.username, "token": token, "admin": user.admin, "hasGitHubPAT": has_pat}
    )


async def log_token(request: Request) -> Response:
    """For the log manager's own clients: a token that opens every log for two minutes."""
    await _logged_in(request)
    return json_response({"token": context(request).tickets.issue(ANY_LOG)})


async def _logged_in(request: Request) -> UserRow:
    body = await form_or_json(request)
    given = Fields(body)
    username = given.text("username", min_length=1)
    password = given.text("password", min_length=users.MIN_PASSWORD_LENGTH)
    if "expiration" in given:
        # Checked, and without effect, as in the original: how long a login holds is the cluster's to say.
        given.number("expiration", minimum=60, maximum=SESSION_S)
    return await users.login(context(request).store, username, password)


async def logout(request: Request) -> Response:
    await authenticate_user(request)
    await context(request).tokens.revoke(token_of(request)[0])
    return json_response({"message": "Logout successfully"})


async def list_tokens(request: Request) -> Response:
    """One's tokens; ours: in pages, and with ``details`` also what each is, and the name it was given."""
    identity = await authenticate_user(request)
    tokens = context(request).tokens
    offset, limit = page_params(request)
    rows = await tokens.rows(identity.username, offset=offset, limit=limit)
    found: dict[str, Any] = {"tokens": [tokens.render(row) for row in rows]}
    if "details" in request.query_params:
        found["details"] = [_details(row) for row in rows]
    return json_response(found)


def _details(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "application": row.kind == "application",
        "createdTime": row.created_ms,
        "expirationTime": row.expires_ms,
    }


async def application_token(request: Request) -> Response:
    """A token for a program; ours: with a ``name`` by which to know it later."""
    identity = await authenticate_user(request)
    shown = await context(request).tokens.find(token_of(request)[0])
    if shown is not None and shown.name == DELEGATION:
        # It would never end, and one that was delegated must.
        raise Forbidden(APPLICATIONS_REFUSED)
    given = await fields_of(request)
    name = given.text("name", "")[:_LONGEST_NAME]
    token = await context(request).tokens.issue(identity.username, "application", name=name)
    return json_response({"token": token, "application": True})


async def check_token(request: Request) -> Response:
    identity = await authenticate(request)
    payload = context(request).tokens.payload(token_of(request)[0]) or {"username": identity.username}
    return json_response({**payload, "admin": identity.admin})


async def revoke_token(request: Request) -> Response:
    """Take a token back; it may be named by its id."""
    identity = await authenticate_user(request)
    tokens = context(request).tokens
    token = request.path_params["token"]
    row = await tokens.find(token)
    if row is not None and row.username != identity.username and not identity.admin:
        raise Forbidden(f"User {identity.username} is not allowed to do this operation.")
    await tokens.revoke(token)
    return json_response({"message": "revoke successfully"})
