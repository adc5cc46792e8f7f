"""Replies of PaddleCloud's dialect.

Its Go client accepts only the status line ``200 OK``, prints ``msg``, and takes a missing key for a crash. So
an error is a 200 with the status in ``code`` and a sentence in ``msg``; only a caller that is not
authenticated, asks too often or sends too much gets another status.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.route import Handler
from paicluster.api.wire.paddlecloud import PaddleReply, PaddleUnauthorized
from paicluster.api.wire.responses import Reply
from paiprotocol.errors import PaiError, TooManyRequests, Unauthorized

_TOO_LARGE = 413


def sentence(error: PaiError) -> str:
    """What is wrong, and what to do. PaddleCloud's own messages end without a full stop."""
    message = error.message
    if error.hint and not message.endswith((".", "!", "?")):
        message += "."
    return f"{message} {error.hint}".strip()


def error_reply(error: PaiError) -> PaddleReply:
    """Reply for an error; one that is sent with its own HTTP status is raised."""
    if isinstance(error, TooManyRequests) or error.status == _TOO_LARGE:
        raise error
    return PaddleReply(error.status, sentence(error))


async def replying(handle: Handler, request: Request) -> Any:
    """Authenticate the caller, and handle the request; errors are replies of this dialect."""
    try:
        await authenticate(request)
    except Unauthorized as error:
        return Reply(PaddleUnauthorized(sentence(error), 401, sentence(error)), 401)
    try:
        return await handle(request)
    except PaiError as error:
        return error_reply(error)


SUCCESS = PaddleReply(200, "")


def has_trailing_slash(request: Request) -> bool:
    """Whether the request came from the Go client, which ends its paths with a slash.

    The path of the scope has none: the gateway strips it.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    return raw.partition(b"?")[0].endswith(b"/")
