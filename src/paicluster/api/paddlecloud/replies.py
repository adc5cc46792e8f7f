"""Replies of PaddleCloud's dialect.

Its Go client accepts only the status line ``200 OK``, prints ``msg``, and takes a missing key for a crash. So
an error is a 200 with the status in ``code`` and a sentence in ``msg``; only a caller that is not
authenticated, asks too often or sends too much gets another status.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import PaiError, TooManyRequests, Unauthorized
from paicluster.api.context import authenticate
from paicluster.api.responses import error_response, json_response
from paicluster.auth.tokens import Identity

Handler = Callable[[Request], Awaitable[Response]]
AuthenticatedHandler = Callable[[Request, Identity], Awaitable[Response]]

_TOO_LARGE = 413


def sentence(error: PaiError) -> str:
    """What is wrong, and what to do. PaddleCloud's own messages end without a full stop."""
    message = error.message
    if error.hint and not message.endswith((".", "!", "?")):
        message += "."
    return f"{message} {error.hint}".strip()


def error_reply(error: PaiError) -> Response:
    if isinstance(error, TooManyRequests) or error.status == _TOO_LARGE:
        return error_response(error)
    return json_response({"code": error.status, "msg": sentence(error)})


def paddle_route(handler: AuthenticatedHandler) -> Handler:
    """Route of an authenticated caller, whose errors are replies of this dialect."""

    @functools.wraps(handler)
    async def route(request: Request) -> Response:
        try:
            identity = await authenticate(request)
        except Unauthorized as error:
            return json_response({"detail": sentence(error), "code": 401, "msg": sentence(error)}, 401)
        try:
            return await handler(request, identity)
        except PaiError as error:
            return error_reply(error)

    return route


def success(**more: Any) -> Response:
    return json_response({"code": 200, "msg": "", **more})


def has_trailing_slash(request: Request) -> bool:
    """Whether the request came from the Go client, which ends its paths with a slash.

    The path of the scope has none: the gateway strips it.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    return raw.partition(b"?")[0].endswith(b"/")
