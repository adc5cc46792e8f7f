"""Info, login, tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from openpaisdk.errors import Forbidden, InvalidParameters
from paicluster.api.answers import answer, form_or_json
from paicluster.api.context import context, identify, identify_person, token_of
from paicluster.auth import accounts


async def banner(request: Request) -> Response:
    return PlainTextResponse("PAI RESTful API v2 (beta version)")


async def info(request: Request) -> Response:
    return answer(
        {
            "name": "PAI RESTful API",
            "version": context(request).version,
            "launcherType": "k8s",
            "authnMethod": "basic",
            # Ours: tasks run on the host, whatever image a job names.
            "containers": False,
        }
    )


async def authn_info(request: Request) -> Response:
    return answer({"authn_type": "basic", "loginURI": "/api/v2/authn/basic/login", "loginURIMethod": "post"})


async def login(request: Request) -> Response:
    body = await form_or_json(request)
    username, password = body.get("username"), body.get("password")
    if not isinstance(username, str) or not isinstance(password, str) or not username:
        raise InvalidParameters("A login needs a 'username' and a 'password'.")
    ctx = context(request)
    user = await accounts.login(ctx.store, username, password)
    token = await ctx.tokens.issue(user.username, "session")
    return answer({"user": user.username, "token": token, "admin": user.admin, "hasGitHubPAT": False})


async def logout(request: Request) -> Response:
    await identify_person(request)
    await context(request).tokens.revoke(token_of(request)[0])
    return answer({"message": "Logout successfully"})


async def list_tokens(request: Request) -> Response:
    identity = await identify_person(request)
    return answer({"tokens": await context(request).tokens.list(identity.username)})


async def application_token(request: Request) -> Response:
    identity = await identify_person(request)
    token = await context(request).tokens.issue(identity.username, "application")
    return answer({"token": token, "application": True})


async def check_token(request: Request) -> Response:
    identity = await identify(request)
    payload = context(request).tokens.payload(token_of(request)[0]) or {"username": identity.username}
    return answer({**payload, "admin": identity.admin})


async def revoke_token(request: Request) -> Response:
    identity = await identify_person(request)
    tokens = context(request).tokens
    token = request.path_params["token"]
    payload = tokens.payload(token)
    if payload is not None and payload.get("username") != identity.username and not identity.admin:
        raise Forbidden(f"User {identity.username} is not allowed to do this operation.")
    await tokens.revoke(token)
    return answer({"message": "revoke successfully"})
