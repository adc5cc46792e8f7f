"""Headers of trusted reverse proxies: which address, scheme and host the client used."""

from __future__ import annotations

from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class ForwardedHeaders(ProxyHeadersMiddleware):
    """uvicorn's middleware for X-Forwarded-For and X-Forwarded-Proto, extended by X-Forwarded-Host."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        client = scope.get("client")
        if client is not None and client[0] in self.trusted_hosts:
            _replace_host(scope)
        await super().__call__(scope, receive, send)


def _replace_host(scope: Any) -> None:
    headers = scope["headers"]
    forwarded = next((value for name, value in headers if name == b"x-forwarded-host"), None)
    if forwarded is None:
        return
    # Each proxy appends the host that it was asked; the first is the client's.
    host = forwarded.partition(b",")[0].strip()
    scope["headers"] = [(name, value) for name, value in headers if name != b"host"] + [(b"host", host)]
