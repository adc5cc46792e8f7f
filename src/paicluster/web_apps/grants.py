"""Grants of web apps: tickets that open an app once, and the cookies that they are exchanged for.

Both are in memory: after a restart of the server a user opens the app again.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

from paicluster.auth.tokens import Identity
from paiprotocol.errors import Forbidden

TICKET_LIFETIME_S = 60
"""How long a ticket is valid: a browser follows the link at once."""
MAX_GRANTS = 256
"""Tickets and cookies of one app; a further one ends the oldest."""

_COOKIE_PREFIX = "pai-"
"""Of all cookies of the cluster: those of the portal, and those of apps. None of them reaches a task."""


class _Ticket(NamedTuple):
    identity: Identity
    expires: float


class AppGrants:
    """Tickets and cookies of one app."""

    def __init__(self) -> None:
        self._tickets: dict[str, _Ticket] = {}
        self._cookies: dict[str, Identity] = {}

    def issue_ticket(self, identity: Identity) -> str:
        ticket = secrets.token_urlsafe(32)
        _drop_oldest(self._tickets)
        self._tickets[ticket] = _Ticket(identity, time.monotonic() + TICKET_LIFETIME_S)
        return ticket

    def redeem(self, ticket: str) -> str:
        """The value of a new cookie, in exchange for the ticket."""
        grant = self._tickets.pop(ticket, None)
        if grant is None or grant.expires <= time.monotonic():
            raise Forbidden(
                "The link has expired or was used before.", hint="Open it again from the page of the job."
            )
        _drop_oldest(self._cookies)
        value = secrets.token_urlsafe(32)
        self._cookies[value] = grant.identity
        return value

    def identity(self, cookie: str | None) -> Identity:
        """The user of a cookie; raises Forbidden for others."""
        grant = self._cookies.get(cookie or "")
        if grant is None:
            raise Forbidden(
                "This app of a job is open to its user only.", hint="Open it from the page of the job."
            )
        return grant


def _drop_oldest(grants: dict[str, _Ticket] | dict[str, Identity]) -> None:
    if len(grants) >= MAX_GRANTS:
        del grants[next(iter(grants))]


def cookie_name(port: int) -> str:
    """Name of an app's cookie, with the port: browsers send a cookie to every port of a host."""
    return f"{_COOKIE_PREFIX}app-{port}"


def is_own_cookie(name: str) -> bool:
    return name.strip().lower().startswith(_COOKIE_PREFIX)
