"""One-time sign-in links: a program that has a token opens a browser that is signed in."""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

from paiprotocol.errors import Unauthorized

LINK_LIFETIME_S = 120
"""How long a link is valid: a browser may take a while to start."""
MAX_LINKS_PER_USER = 10
"""Unused links of a user in memory; a further one ends the oldest."""


class Link(NamedTuple):
    username: str
    token_id: str
    expires: float


class SignInLinks:
    """Codes of one-time links, in memory: none survives a restart of the server."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}

    def issue(self, username: str, token_id: str) -> str:
        """A new code for this user. ``token_id``: the token that asked for it, with which it ends."""
        now = time.monotonic()
        self._links = {code: link for code, link in self._links.items() if link.expires > now}
        own = [code for code, link in self._links.items() if link.username == username]
        if len(own) >= MAX_LINKS_PER_USER:
            del self._links[own[0]]
        code = secrets.token_urlsafe(32)
        self._links[code] = Link(username, token_id, now + LINK_LIFETIME_S)
        return code

    def redeem(self, code: str) -> Link:
        """The link of a code, which is used up."""
        link = self._links.pop(code, None)
        if link is None or link.expires <= time.monotonic():
            raise Unauthorized(
                "The sign-in link has expired or was used before.", hint="Type `pai open` for a new one."
            )
        return link
