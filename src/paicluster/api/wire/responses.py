"""JSON and error responses in OpenPAI's format."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive

from paicluster.api.routing.uvicorn_cycle import transport_of
from paiprotocol.errors import PaiError, TooManyRequests, Unavailable

log = logging.getLogger("paicluster.api")

T = TypeVar("T")

encode = msgspec.json.Encoder().encode

# A longer header is cut: some clients and proxies reject it.
_MAX_WARNING_LENGTH = 2000


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, media_type="application/json")


class Encoded(Generic[T]):
    """JSON of a value, encoded where it does not hold up other requests, such as in a reader's thread.

    ``rest`` follows the body; each piece is made when the client has read those before it.
    """

    __slots__ = ("body", "rest")

    def __init__(self, body: bytes, rest: AsyncIterator[bytes] | None = None) -> None:
        self.body = body
        self.rest = rest


def encoded(value: T) -> Encoded[T]:
    return Encoded(encode(value))


class Reply(msgspec.Struct, Generic[T], frozen=True):
    """Value that a handler returns with headers, or with another status than the route's."""

    value: T | Encoded[T]
    status: int | None = None
    headers: dict[str, str] | None = None


def encoded_response(value: Encoded[Any], status: int) -> Response:
    if value.rest is not None:
        return StreamingResponse(_all(value.body, value.rest), status, media_type="application/json")
    return Response(value.body, status, media_type="application/json")


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def reply_response(reply: Reply[Any], status: int) -> Response:
    value = reply.value
    body = value.body if isinstance(value, Encoded) else encode(value)
    return Response(body, reply.status or status, reply.headers, media_type="application/json")


def warning_headers(warnings: Sequence[str]) -> dict[str, str]:
    """Header with what a client should tell its user about a request that was accepted."""
    text = "; ".join(warnings)[:_MAX_WARNING_LENGTH]
    return {"X-Warning": text.encode("ascii", "backslashreplace").decode()} if text else {}


def error_response(error: PaiError) -> Response:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.hint:
        body["hint"] = error.hint
    headers = None
    if isinstance(error, TooManyRequests):
        wait = str(max(1, math.ceil(error.retry_after_s)))
        headers = {
            "Retry-After": wait,
            "X-RateLimit-Limit": str(error.limit),
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(int(time.time()) + int(wait)),
        }
    elif isinstance(error, Unavailable) and error.retry_after_s is not None:
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    return json_response(body, error.status, headers)


def exception_response(request: Request, error: BaseException, route: str) -> Response:
    """Error response for an exception; unexpected exceptions are logged.

    The log line has the route and not the URL, which may contain a token.
    """
    if isinstance(error, PaiError):
        return error_response(error)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    log.error("%s %s failed", request.method, route, exc_info=error)
    return error_response(PaiError("Internal error of the cluster; the server's log has the details."))


def abort_response(receive: Receive) -> bool:
    """Abort the connection of uvicorn that a request came on, so that no client takes a part of the response
    for the whole; False for requests of the server itself, which have none."""
    transport = transport_of(receive)
    if transport is None:
        return False
    transport.abort()
    return True
