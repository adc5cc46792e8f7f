"""Limits of open connections: of one address, of one token, and of all of them.

Connections that no user has signed in on and that wait for a request cost a client nothing, but the server a
descriptor. Where there are too many, the oldest of these are closed, never one whose request is processed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from starlette.types import Receive

from paicluster.api.routing.scope import IDENTITY_KEY
from paicluster.api.routing.uvicorn_cycle import transport_of
from paiprotocol.errors import TooManyRequests

RESERVED_CONNECTIONS = 64
"""Connections beyond the maximum: anonymous ones in them are the next to be closed."""
# So many of the connections that may be closed are closed at a time: looking for them takes time.
_SHED_DIVISOR = 16


class Connection(Protocol):
    """uvicorn's connection, with the time when it was opened."""

    client: tuple[str, int] | None
    cycle: Any
    flow: Any
    opened: float
    transport: Any
    # Those of the token of its latest request.
    of_token: ConnectionsOfToken | None


class ConnectionLimits:
    """One per listener. ``maximum``: of all addresses; without a ``per_address`` limit only that counts.

    ``is_exempt`` tells addresses that many clients share: loopback and proxies.
    """

    def __init__(
        self,
        maximum: int,
        per_address: int | None = None,
        is_exempt: Callable[[str], bool] = lambda address: False,
    ) -> None:
        self._maximum = maximum
        self._per_address = per_address
        self._is_exempt = is_exempt
        # Weak: a connection that became a WebSocket is not reported as lost.
        self._of_address: dict[str, WeakSet[Connection]] = {}

    def add(self, connection: Connection, connections: Collection[Connection]) -> None:
        """Count a new connection, which is one of ``connections``; closes others, or else this one."""
        if self._per_address is not None and connection.client is not None:
            self._add_to_address(connection, connection.client[0], self._per_address)
        surplus = len(connections) - self._maximum
        if surplus > 0 and not _shed(connections, connection) and surplus > RESERVED_CONNECTIONS:
            connection.transport.abort()

    def discard(self, connection: Connection) -> None:
        """A connection was lost."""
        if self._per_address is None or connection.client is None:
            return
        own = self._of_address.get(connection.client[0])
        if own is not None:
            own.discard(connection)
            if not own:
                del self._of_address[connection.client[0]]

    def _add_to_address(self, connection: Connection, address: str, limit: int) -> None:
        if self._is_exempt(address):
            return
        own = self._of_address.setdefault(address, WeakSet())
        own.add(connection)
        if len(own) <= limit:
            return
        # Those of users are limited by what their requests may do.
        anonymous = [other for other in own if not _is_signed_in(other)]
        if len(anonymous) > limit and not _shed(anonymous, connection):
            connection.transport.abort()


class ConnectionsOfToken:
    """Open connections whose latest request had the same token."""

    def __init__(self, token_id: str) -> None:
        self.token_id = token_id
        self.members: set[Connection] = set()


class TokenConnectionLimit:
    """Limit of the connections of one token, from any address: loopback and proxies have no other one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Each is kept by its connections.
        self._of_token: WeakValueDictionary[str, ConnectionsOfToken] = WeakValueDictionary()

    def count(self, connection: Connection, token_id: str) -> None:
        """Count the connection of a request for its token; TooManyRequests if no idle one makes room."""
        own = connection.of_token
        if own is not None and own.token_id == token_id:
            return
        leave_token(connection)
        own = self._of_token.get(token_id)
        if own is None:
            own = self._of_token[token_id] = ConnectionsOfToken(token_id)
        if len(own.members) >= self._limit and not _shed(own.members, connection):
            raise TooManyRequests(
                f"This token has {self._limit} open connections, which is the limit.",
                limit=self._limit,
                hint="Close some of them first, or use another token for each program.",
            )
        own.members.add(connection)
        connection.of_token = own


def leave_token(connection: Connection) -> None:
    """Count a connection for its token no longer: it was lost, or is no longer one of HTTP requests."""
    if connection.of_token is not None:
        connection.of_token.members.discard(connection)
        connection.of_token = None


def connection_of(receive: Receive) -> Connection | None:
    """uvicorn's connection that a request came on; None for requests of the server itself."""
    transport = transport_of(receive)
    protocol: Any = None if transport is None else transport.get_protocol()
    return protocol if hasattr(protocol, "of_token") else None


def is_loopback_address(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "::ffff:127.0.0.1")


def _shed(connections: Collection[Connection], newest: Connection) -> int:
    """Close the oldest of those that may be closed, those without a user first; returns how many."""
    candidates = [
        connection for connection in connections if connection is not newest and _may_end(connection)
    ]
    anonymous = [connection for connection in candidates if not _is_signed_in(connection)]
    by_age = sorted(anonymous or candidates, key=lambda connection: connection.opened)
    count = -(-len(by_age) // _SHED_DIVISOR)
    for connection in by_age[:count]:
        connection.transport.abort()
    return count


def _may_end(connection: Connection) -> bool:
    """Whether a connection is idle, or its response is not read and for no user."""
    if connection.transport.is_closing():
        return False
    cycle = connection.cycle
    is_idle = cycle is None or cycle.response_complete
    return is_idle or (connection.flow.write_paused and not _is_signed_in(connection))


def _is_signed_in(connection: Connection) -> bool:
    """Whether the latest request of a connection was that of a user."""
    return connection.cycle is not None and IDENTITY_KEY in connection.cycle.scope
