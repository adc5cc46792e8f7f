"""Headers that tell browsers what not to do with our answers, and which pages may use them."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Message, Scope, Send

_RawHeader = tuple[bytes, bytes]

# Nothing we answer is a page to be run, framed, guessed at, or kept; what is one says so itself.
_ALWAYS: tuple[_RawHeader, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_OVER_TLS: _RawHeader = (b"strict-transport-security", b"max-age=31536000")

_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_REMEMBER_S = b"600"
# What a page may read of an answer, beside what every page may.
_EXPOSED = b"Location, Retry-After, X-Warning, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"


class Headers:
    """``origins`` are those whose pages may use the API from a browser; by default none."""

    def __init__(self, origins: Iterable[str] = (), *, secure: bool = False) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._always = (*_ALWAYS, _OVER_TLS) if secure else _ALWAYS
        self._common = list(self._always)

    def apply(self, response: Response) -> None:
        """What a route set itself stays."""
        raw = response.raw_headers
        # Nearly every answer has its length and its type, and nothing of what is ours.
        if len(raw) <= 2:
            raw.extend(self._common)
            return
        there = {name for name, _ in raw}
        raw.extend(header for header in self._always if header[0] not in there)

    @property
    def cors_enabled(self) -> bool:
        return bool(self._origins)

    def origin_of(self, scope: Scope) -> bytes | None:
        """The origin of a request, when it is one that may."""
        for name, value in scope["headers"]:
            if name == b"origin":
                found: bytes = value
                return found if found in self._origins else None
        return None

    def allowing(self, origin: bytes, send: Send) -> Send:
        """``send``, with what lets a page of this origin read the answer."""

        async def allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"access-control-allow-origin", origin),
                    (b"access-control-expose-headers", _EXPOSED),
                    (b"vary", b"Origin"),
                ]
            await send(message)

        return allowed

    def preflight(self, scope: Scope, origin: bytes) -> Response:
        """The answer to a browser that asks first."""
        wanted = next((v for n, v in scope["headers"] if n == b"access-control-request-headers"), b"")
        response = Response(status_code=204)
        response.raw_headers = [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", _REMEMBER_S),
            (b"vary", b"Origin, Access-Control-Request-Headers"),
        ]
        return response
