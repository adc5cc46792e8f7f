"""Redirects of CREATE, APPEND, OPEN and GETFILECHECKSUM, and the tickets in their URLs.

A ticket permits one operation on one path for minutes: a URL can carry it instead of a token.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from paicluster.api.webhdfs.parameters import Parameters
from paicluster.auth.tickets import Tickets
from paicluster.files import StorageUser
from paiprotocol.errors import Unauthorized

# Some clients append piece by piece with the URL of one redirect.
TICKET_LIFETIME_S = 600

_ADMIN, _USER = "a", "u"
# Parameters of the first request that the second one needs.
_FORWARDED = ("overwrite", "permission", "createparent", "createflag", "offset", "length")


def redirect_url(
    resource_url: str, path: str, operation: str, parameters: Parameters, user: StorageUser, tickets: Tickets
) -> str:
    """URL for the second step of an operation. ``resource_url``: without query."""
    query = {"op": operation}
    query |= {name: value for name in _FORWARDED if (value := parameters.text(name))}
    query["user.name"] = user.name
    query["data"] = "true"
    query["ticket"] = _issue_ticket(tickets, operation, path, user)
    return f"{resource_url}?{urlencode(query)}"


def hadoop_uri(external_url: str, path: str) -> str:
    """`webhdfs://` URI of a path, as Hadoop's clients write it."""
    url = urlsplit(external_url)
    scheme = "swebhdfs" if url.scheme == "https" else "webhdfs"
    return f"{scheme}://{url.netloc}{quote(path)}"


def _issue_ticket(tickets: Tickets, operation: str, path: str, user: StorageUser) -> str:
    role = _ADMIN if user.admin else _USER
    return f"{role}-{tickets.issue(_ticket_subject(role, operation, path, user.name), TICKET_LIFETIME_S)}"


def check_ticket(tickets: Tickets, ticket: str, operation: str, path: str, name: str) -> bool:
    """Whether the ticket's user acts as an administrator; Unauthorized when the ticket is not valid."""
    role, _, rest = ticket.partition("-")
    if role not in (_ADMIN, _USER) or not tickets.is_valid(
        rest, _ticket_subject(role, operation, path, name)
    ):
        raise Unauthorized("The ticket in this URL is invalid or expired: start the operation again.")
    return role == _ADMIN


def _ticket_subject(role: str, operation: str, path: str, name: str) -> str:
    # User names and operations contain no line break, so no text can move from one field to another.
    return "\n".join(("webhdfs", role, operation, name, path))
