"""Answers and errors in OpenPAI's shapes, and bodies read within limits."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, PaiError

log = logging.getLogger("paicluster.api")

encode = msgspec.json.Encoder().encode

MAX_BODY = 8 << 20


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, media_type="application/json")


def refusal(error: PaiError) -> Response:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.hint:
        body["hint"] = error.hint
    return answer(body, error.status)


def route_errors(route: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Every failure of a route as an answer for people; what we did not foresee goes to the log."""

    async def guarded(request: Request) -> Response:
        try:
            return await route(request)
        except PaiError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return refusal(PaiError("The cluster hit an error of its own; its log has the details."))

    return guarded


async def body_of(request: Request, limit: int = MAX_BODY) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
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
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> PaiError:
    return InvalidParameters(f"The request's body is larger than {limit >> 20} MB.", status=413)


LARGEST_NUMBER = 2**63 - 1


def whole_number(
    value: str | None, name: str, default: int | None = None, largest: int = LARGEST_NUMBER
) -> int:
    """A number of the query. Without a default it must be there."""
    if not value and default is not None:
        return default
    # `isdigit` alone takes superscripts, and `int` refuses thousands of digits in words of its own.
    if not value or not value.isascii() or not value.isdigit():
        raise InvalidParameters(f'"{name}" must be a whole number of 0 or more, not {_short(value)}.')
    if len(value) > 19 or int(value) > largest:
        raise InvalidParameters(f'"{name}" must be less than or equal to {largest}.')
    return int(value)


def _short(value: str | None) -> str:
    text = value or ""
    return repr(text if len(text) <= 40 else text[:40] + "…")


async def form_or_json(request: Request) -> dict[str, Any]:
    """A mapping from a JSON or a form-encoded body."""
    body = await body_of(request, 1 << 20)
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise InvalidParameters("The request's body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InvalidParameters("The request's body must be a JSON object.")
    return value
