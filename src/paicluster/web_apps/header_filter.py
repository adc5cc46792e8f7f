"""Headers of requests and responses between a browser and the web server of a task."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from paicluster.web_apps.grants import is_own_cookie

Header = tuple[bytes, bytes]

# Of one connection, not of the message.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# What the server sets itself, or has answered.
_REPLACED = frozenset((b"host", b"origin", b"cookie", b"expect", b"x-forwarded-host", b"x-forwarded-proto"))
# They apply to the whole host, so to the portal and to other apps.
_HOST_WIDE = frozenset((b"clear-site-data", b"strict-transport-security", b"alt-svc"))

# A page that shows an app in a frame could make the user click in it. A policy of the app holds beside it.
_FRAMED_BY_ITSELF = (b"content-security-policy", b"frame-ancestors 'self'")


def request_headers(headers: Iterable[Header], port: int, scheme: str) -> list[Header]:
    """Request headers for the task's server: as those of a browser on its own machine."""
    received = list(headers)
    names = {name for name, _ in received}
    sent = [pair for pair in received if pair[0] not in _HOP_BY_HOP | _REPLACED]
    sent.append((b"host", f"localhost:{port}".encode()))
    for name, value in received:
        if name == b"host":
            sent.append((b"x-forwarded-host", value))
        elif name == b"cookie" and (kept := foreign_cookies(value)):
            sent.append((b"cookie", kept))
    sent.append((b"x-forwarded-proto", scheme.encode()))
    if b"origin" in names:
        sent.append((b"origin", f"http://localhost:{port}".encode()))
    if b"upgrade" in names:
        sent += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    else:
        sent.append((b"connection", b"close"))
        if b"transfer-encoding" in names:
            sent.append((b"transfer-encoding", b"chunked"))
    return sent


def foreign_cookies(value: bytes) -> bytes:
    """A header of cookies without those of the cluster."""
    pairs = value.decode("latin-1").split(";")
    kept = [pair.strip() for pair in pairs if not is_own_cookie(pair.partition("=")[0])]
    return "; ".join(pair for pair in kept if pair).encode("latin-1")


def response_headers(headers: Iterable[Header], port: int) -> list[Header]:
    """Response headers for the browser: redirects within the app, no foreign frame, nothing host-wide."""
    sent: list[Header] = [_FRAMED_BY_ITSELF]
    for name, value in headers:
        if name in _HOP_BY_HOP | _HOST_WIDE:
            continue
        if name == b"set-cookie" and is_own_cookie(value.partition(b"=")[0].decode("latin-1")):
            continue
        sent.append((name, _location(value, port) if name == b"location" else value))
    return sent


def _location(value: bytes, port: int) -> bytes:
    """A redirect to the task's server by the name it knows becomes one within the app."""
    try:
        url = urlsplit(value.decode("latin-1"))
        is_own = url.netloc == f"localhost:{port}"
    except ValueError:
        return value
    # Never `//`, which would be another host.
    path = "/" + url.path.lstrip("/")
    return url._replace(scheme="", netloc="", path=path).geturl().encode("latin-1") if is_own else value
