"""Security headers of responses, and CORS."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Message, Scope, Send

_RawHeader = tuple[bytes, bytes]

# No response may be executed, framed, sniffed or cached; pages set their own headers.
_ALWAYS: tuple[_RawHeader, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_OVER_TLS: _RawHeader = (b"strict-transport-security", b"max-age=31536000")

_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_PREFLIGHT_MAX_AGE_S = b"600"
# Response headers that pages of other origins may read, beside the default ones.
_EXPOSED = b"Location, Retry-After, X-Warning, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"


class SecurityHeaders:
    """``origins``: web pages of these origins may call the API; by default none."""

    def __init__(self, origins: Iterable[str] = (), *, secure: bool = False) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._always = (*_ALWAYS, _OVER_TLS) if secure else _ALWAYS
        self._common = list(self._always)

    def apply(self, response: Response) -> None:
        """Add the headers. Headers that the route set stay."""
        raw = response.raw_headers
        # Nearly every response has only a length and a type, so no name can collide.
        if len(raw) <= 2:
            raw.extend(self._common)
            return
        present = {name for name, _ in raw}
        raw.extend(header for header in self._always if header[0] not in present)

    @property
    def cors_enabled(self) -> bool:
        return bool(self._origins)

    def allowed_origin(self, scope: Scope) -> bytes | None:
        """Origin of a request if it is an allowed one."""
        for name, value in scope["headers"]:
            if name == b"origin":
                origin: bytes = value
                return origin if origin in self._origins else None
        return None

    def with_cors(self, origin: bytes, send: Send) -> Send:
        """``send`` with CORS headers: pages of this origin may read the response."""

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"access-control-allow-origin", origin),
                    (b"access-control-expose-headers", _EXPOSED),
                    (b"vary", b"Origin"),
                ]
            await send(message)

        return send_with_cors

    def preflight(self, scope: Scope, origin: bytes) -> Response:
        """Response to a CORS preflight request."""
        requested = next((v for n, v in scope["headers"] if n == b"access-control-request-headers"), b"")
        response = Response(status_code=204)
        response.raw_headers = [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", requested),
            (b"access-control-max-age", _PREFLIGHT_MAX_AGE_S),
            (b"vary", b"Origin, Access-Control-Request-Headers"),
        ]
        return response
