"""Logins in browsers: the two halves of a login token, one in a cookie and one in a header.

Browsers send a cookie to every port of a host, so a server that a job runs on this machine sees it. Therefore
the cookie holds only the signed part of the token. The other half, the signature, is given to the portal's
script, which stores it for its own origin and sends it as a header. A cookie alone is worthless, and another
site, which cannot send the header, cannot call the API in the user's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.responses import Response

PROOF_HEADER = "x-pai-session-proof"
"""Header with the half of the token that the portal's script keeps."""
TOKEN_NAME = "browser"
"""Name of the rows of these tokens."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def split_token(token: str) -> tuple[str, str]:
    """Value of the cookie, and proof."""
    signed, _, signature = token.rpartition(".")
    return signed, signature


def token_of_browser(cookies: Mapping[str, str], proof: str, url: str) -> str | None:
    """The token of a request to the server at this URL; None without the cookie."""
    signed = cookies.get(cookie_name(url))
    return f"{signed}.{proof}" if signed else None


def cookie_name(url: str) -> str:
    """Contains the port: clusters on several ports of one host must not overwrite each other's cookies."""
    address = urlsplit(url)
    return f"pai-session-{address.port or _DEFAULT_PORTS.get(address.scheme, 0)}"


def cookie_headers(url: str, value: str) -> dict[str, str]:
    """Header that sets the cookie of the server at this URL; an empty value removes it."""
    address = urlsplit(url)
    response = Response()
    response.set_cookie(
        cookie_name(url),
        value,
        # The login token has the real expiry. The cookie stays when the browser is closed.
        max_age=366 * 24 * 3600 if value else 0,
        path=address.path or "/",
        secure=address.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return {"set-cookie": response.headers["set-cookie"]}
