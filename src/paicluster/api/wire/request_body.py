"""Bodies of requests, read within limits: the whole, the beginning, or the fields."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from paicluster.api.routing.scope import CONTEXT_KEY, IDENTITY_KEY, ROUTE_KEY
from paiprotocol.errors import InvalidParameters, PaiError

FREE_BYTES = 64 << 10
"""Bytes of a body that count against no budget: the HTTP server buffers as much of each connection anyway."""


def body_limit(request: Request) -> int:
    """Bytes of the largest body of a request, as its route declares it."""
    limit: int | None = request.scope[ROUTE_KEY].body_limit
    if limit is None:
        raise RuntimeError("The route declares no body, or one that is not read whole.")
    return limit


async def read_body(request: Request) -> bytes:
    """The whole body, up to the limit that the route declares.

    A body of more than 64 KiB counts against the budget of all bodies in memory: Unavailable beyond it.
    """
    limit = body_limit(request)
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
    scope[CONTEXT_KEY].server.policies.body_budget.reserve(
        scope, "" if identity is None else identity.username, size
    )


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


async def fields_of(request: Request, *, may_be_empty: bool) -> dict[str, Any]:
    """The mapping in a JSON or form-encoded body; an empty body may have no fields."""
    body = await read_body(request)
    return {} if may_be_empty and not body.strip() else mapping_of(request, body)


def mapping_of(request: Request, body: bytes) -> dict[str, Any]:
    """The mapping in a JSON or form-encoded body that is already read."""
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
