"""URL of this server as the client of a request reaches it."""

from __future__ import annotations

import ipaddress
import re

from starlette.requests import Request

from paicluster.api.context import context

# A name or an address with an optional port, and nothing that would change the meaning of a URL.
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def own_url(request: Request) -> str:
    """Base URL of links and redirects: the configured one, else the host that was asked, which the client can
    reach.

    Without a valid Host it is the address that tasks use.
    """
    ctx = context(request)
    if ctx.server.settings.external_url is not None:
        return ctx.server.settings.external_url
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host}" if _is_host(host) else ctx.files.own.external_url


def _is_host(text: str) -> bool:
    """Whether a URL can have this as its host: in brackets, nothing but an address of IPv6."""
    matched = _HOST.fullmatch(text)
    if matched is None or not text.startswith("["):
        return matched is not None
    try:
        ipaddress.IPv6Address(matched[1][1:-1])
    except ValueError:
        return False
    return True
