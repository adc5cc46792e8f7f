"""Permissions for one operation on one path, for minutes: what an address may carry instead of a token."""

from __future__ import annotations

from openpaisdk.errors import Unauthorized
from paicluster.auth.tickets import Tickets
from paicluster.files import StorageUser

# Some clients append piece by piece to the address they were given once.
LIFETIME_S = 600

_ADMIN, _USER = "a", "u"


def issue(tickets: Tickets, operation: str, path: str, who: StorageUser) -> str:
    right = _ADMIN if who.admin else _USER
    return f"{right}-{tickets.issue(_what(right, operation, path, who.name), LIFETIME_S)}"


def check(tickets: Tickets, ticket: str, operation: str, path: str, name: str) -> bool:
    """Whether whoever was given the ticket acts as an administrator; refused when it is not good."""
    right, _, rest = ticket.partition("-")
    if right not in (_ADMIN, _USER) or not tickets.is_valid(rest, _what(right, operation, path, name)):
        raise Unauthorized("The ticket of this address is not good, or no longer: begin the operation again.")
    return right == _ADMIN


def _what(right: str, operation: str, path: str, name: str) -> str:
    # No name of a user has a line break, and no operation: nothing can be moved from one part to another.
    return "\n".join(("webhdfs", right, operation, name, path))
