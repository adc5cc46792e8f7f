"""JSON and error responses in OpenPAI's format; request bodies and query parameters within limits."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from openpaisdk.errors import InvalidParameters, PaiError, TooManyRequests, Unavailable
from paicluster.api.middleware.audit import IDENTITY_KEY
from paicluster.api.middleware.body_budget import FREE_BYTES

log = logging.getLogger("paicluster.api")

encode = msgspec.json.Encoder().encode

# Key of the context in a request's scope.
KEY = "paicluster.context"


# A longer header is cut: some clients and proxies reject it.
_MAX_WARNING_LENGTH = 2000


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, media_type="application/json")


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


async def read_body(request: Request, limit: int | None = None) -> bytes:
    """The whole body, up to ``limit`` bytes; the default limit is in the settings.

    A body of more than 64 KiB counts against the budget of all bodies in memory: Unavailable beyond it.
    """
    if limit is None:
        limit = request.scope[KEY].policies.max_body_bytes
    _check_announced_length(request, limit)
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if size > FREE_BYTES:
            _reserve(request, len(part))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_announced_length(request: Request, limit: int) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 19 or int(announced) > limit):
        raise _too_large(limit)


def _reserve(request: Request, size: int) -> None:
    scope = request.scope
    identity = scope.get(IDENTITY_KEY)
    scope[KEY].policies.body_budget.reserve(scope, "" if identity is None else identity.username, size)


async def peek_body(request: Request, limit: int = FREE_BYTES) -> tuple[bytes, Receive]:
    """The beginning of a body, at least ``limit`` bytes unless it is shorter; and a ``receive`` for all of
    it.
    """
    messages: list[Message] = []
    size = 0
    more = True
    while more and size < limit:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        messages.append(message)
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    head = b"".join([message.get("body", b"") for message in messages])
    messages.reverse()

    async def receive_all() -> Message:
        return messages.pop() if messages else await request.receive()

    return head, receive_all


def _too_large(limit: int) -> PaiError:
    shown = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit >> 10} KB"
    return InvalidParameters(f"The request's body is larger than {shown}.", status=413)


MAX_INT = 2**63 - 1


def int_param(value: str | None, name: str, default: int | None = None, maximum: int = MAX_INT) -> int:
    """An integer of the query; required unless there is a default."""
    if not value and default is not None:
        return default
    # `isdigit` alone accepts superscripts, and `int` raises its own error for thousands of digits.
    if not value or not value.isascii() or not value.isdigit():
        raise InvalidParameters(f'"{name}" must be a whole number of 0 or more, not {_short(value)}.')
    if len(value) > 19 or int(value) > maximum:
        raise InvalidParameters(f'"{name}" must be less than or equal to {maximum}.')
    return int(value)


def bool_param(query: Mapping[str, str], name: str) -> bool:
    """Whether a flag of the query is ``true``."""
    return query.get(name, "").lower() == "true"


MAX_PAGE_SIZE = 50_000


def page_params(request: Request) -> tuple[int, int]:
    """``offset`` and ``limit``, our addition to lists that OpenPAI always returns whole."""
    get = request.query_params.get
    return (
        int_param(get("offset"), "offset", 0),
        int_param(get("limit"), "limit", MAX_PAGE_SIZE, MAX_PAGE_SIZE),
    )


def _short(value: str | None) -> str:
    text = value or ""
    return repr(text if len(text) <= 40 else text[:40] + "…")


MAX_FIELDS_BYTES = 1 << 20
"""Body with the fields of a request by an authenticated caller."""
MAX_ANONYMOUS_BYTES = 64 << 10
"""Body of a request that is read before its caller is authenticated: a login, a query of metrics."""


async def form_or_json(request: Request, limit: int = MAX_FIELDS_BYTES) -> dict[str, Any]:
    """The mapping in a JSON or form-encoded body."""
    return mapping_of(request, await read_body(request, limit))


def mapping_of(request: Request, body: bytes) -> dict[str, Any]:
    """As `form_or_json`, from a body that is already read."""
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidParameters("The request's body is not valid JSON.") from None
    except RecursionError:
        raise InvalidParameters("The JSON of the request's body is nested too deep.") from None
    if not isinstance(value, dict):
        raise InvalidParameters("The request's body must be a JSON object.")
    return value
