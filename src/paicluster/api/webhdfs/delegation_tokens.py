"""Delegation tokens: the cluster's own tokens in Hadoop's format.

A token has the lifetime of a login from its start: renewing it returns the expiry and does not extend it.
"""

from __future__ import annotations

import time

from starlette.responses import Response

from paicluster.api.webhdfs import token_codec
from paicluster.api.webhdfs.exceptions import JavaException
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.api.wire.responses import json_response
from paicluster.auth.tokens import DELEGATION, TokenKind
from paicluster.files.errors import not_allowed
from paiprotocol.errors import InvalidParameters, PaiError, Unauthorized

_INVALID = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
_NEVER_MS = 253_402_300_799_000


async def get_token(call: WebHdfsRequest) -> Response:
    """New token for a user. An application or a job gets its own token back: it may not issue others.

    A delegation token cannot be used to get another one: it could be prolonged without end.
    """
    identity = call.caller.identity
    if identity is None:
        raise Unauthorized("Delegation Token can be issued only with a token.")
    token = call.caller.token
    tokens = call.context.identity.tokens
    if identity.kind is TokenKind.DELEGATION:
        raise _no_login()
    if identity.kind is TokenKind.LOGIN:
        if await tokens.find(token) is None:  # of a local administrator: it lasts two minutes
            raise _no_login()
        token = await tokens.issue(identity.username, "session", name=DELEGATION)
    issued, expires = _times(call, token)
    url = token_codec.encode(
        token, call.user.name, call.parameters.text("renewer"), issued, expires, call.files.external_url
    )
    return json_response({"Token": {"urlString": url}})


def _no_login() -> PaiError:
    return not_allowed("Delegation Token can be issued only with a login token.")


async def renew_token(call: WebHdfsRequest) -> Response:
    token = await _target_token(call)
    return json_response({"long": _times(call, token)[1]})


async def cancel_token(call: WebHdfsRequest) -> Response:
    token = await _target_token(call)
    if not await call.context.identity.tokens.revoke(token):
        raise JavaException(_INVALID, 403, "This token cannot be cancelled: it expires with its job.")
    return Response(None, 200)


async def _target_token(call: WebHdfsRequest) -> str:
    """The token of the parameter; it must be the caller's, or the caller an administrator."""
    text = call.parameters.text("token")
    if not text:
        raise InvalidParameters('Required param "token" is null or empty')
    token = token_codec.decode(text)
    try:
        identity = await call.context.identity.tokens.verify(token)
    except Unauthorized as error:
        raise JavaException(_INVALID, 403, error.message) from None
    if identity.username != call.user.name and not call.user.admin:
        raise not_allowed(f"{call.user.name} is not the owner of this token")
    return token


def _times(call: WebHdfsRequest, token: str) -> tuple[int, int]:
    payload = call.context.identity.tokens.payload(token) or {}
    issued, expires = payload.get("iat"), payload.get("exp")
    return (
        int(issued * 1000) if isinstance(issued, int) else int(time.time() * 1000),
        int(expires * 1000) if isinstance(expires, int) else _NEVER_MS,
    )
