"""Delegation tokens: ours, in Hadoop's clothes.

A token lasts as long as a login does, from the beginning: renewing it tells until when, and prolongs nothing.
"""

from __future__ import annotations

import time

from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, Unauthorized
from paicluster.api.responses import json_response
from paicluster.api.webhdfs import token_codec
from paicluster.api.webhdfs.exceptions import Refused
from paicluster.api.webhdfs.request import WebHdfsRequest
from paicluster.auth.tokens import DELEGATION
from paicluster.files.errors import not_allowed

_INVALID = "org.apache.hadoop.security.token.SecretManager$InvalidToken"
_FAR = 253_402_300_799_000


async def get_token(call: WebHdfsRequest) -> Response:
    """A new token for a person. An application or a job gets its own back: it may not make others.

    Whoever has no more than such a token gets none for it: it would never end.
    """
    identity = call.caller.identity
    if identity is None:
        raise Unauthorized("Delegation Token can be issued only to somebody who shows a token.")
    token = call.caller.token
    if not identity.application and identity.job_id is None:
        shown = await call.context.tokens.find(token)
        if shown is None or shown.name == DELEGATION:
            raise not_allowed("Delegation Token can be issued only to somebody who logged in.")
        token = await call.context.tokens.issue(identity.username, "session", name=DELEGATION)
    issued, expires = _times(call, token)
    url = token_codec.encode(
        token, call.who.name, call.parameters.text("renewer"), issued, expires, call.files.external_url
    )
    return json_response({"Token": {"urlString": url}})


async def renew_token(call: WebHdfsRequest) -> Response:
    token = await _own(call)
    return json_response({"long": _times(call, token)[1]})


async def cancel_token(call: WebHdfsRequest) -> Response:
    token = await _own(call)
    if not await call.context.tokens.revoke(token):
        raise Refused(_INVALID, 403, "This token cannot be cancelled: it ends with its job.")
    return Response(None, 200)


async def _own(call: WebHdfsRequest) -> str:
    """The token that is spoken of; it must be the caller's, or the caller an administrator."""
    text = call.parameters.text("token")
    if not text:
        raise InvalidParameters('Required param "token" is null or empty')
    token = token_codec.decode(text)
    try:
        identity = await call.context.tokens.verify(token)
    except Unauthorized as error:
        raise Refused(_INVALID, 403, error.message) from None
    if identity.username != call.who.name and not call.who.admin:
        raise not_allowed(f"{call.who.name} is not the owner of this token")
    return token


def _times(call: WebHdfsRequest, token: str) -> tuple[int, int]:
    said = call.context.tokens.payload(token) or {}
    issued, expires = said.get("iat"), said.get("exp")
    return (
        int(issued * 1000) if isinstance(issued, int) else int(time.time() * 1000),
        int(expires * 1000) if isinstance(expires, int) else _FAR,
    )
