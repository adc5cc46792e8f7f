"""Slow clients: drops connections whose request never arrives or whose response is never read.

Costs nothing per request: all connections are checked periodically, and those without progress are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from paicluster.api.middleware.connection_limits import (
    ConnectionLimits,
    ConnectionsOfToken,
    leave_token,
)
from paicluster.api.middleware.raw_targets import RawTargetHttpProtocol
from paicluster.api.middleware.response_budget import ResponseBudget

# A slower client is considered dead or malicious.
MIN_BYTES_PER_S = 1024
# Of a response that occupies memory which other requests wait for.
MIN_WANTED_BYTES_PER_S = 8 << 10
# So long such a response may take to show its speed.
_WANTED_TIMEOUT_S = 15.0
_MAX_INTERVAL_S = 5.0
MAX_HEAD_BYTES = 256 << 10

# Offset of tcpi_bytes_acked in Linux's `struct tcp_info`.
_BYTES_ACKED_OFFSET = 120

_MAX_OPEN_FILES = 1 << 16
# Descriptors for other things than connections: database, logs, tasks.
_RESERVED_FILES = 256

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE_TEXT = b"""The headers of the request are larger than 256 KiB, so it was refused.

In a browser these are the cookies of this host: a page at another port of it may have set very many.
Open this address again. If you see this text again, delete the cookies of this host in the settings of your
browser.
"""
# A browser obeys `Clear-Site-Data` over TLS and on its own machine.
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    b'clear-site-data: "cookies"\r\ncache-control: no-store\r\ncontent-length: %d\r\n\r\n%b'
) % (len(_TOO_LARGE_TEXT), _TOO_LARGE_TEXT)
# A client reads a response only after it has sent its request, and none of a connection that was reset.
_MAX_DISCARDED_BYTES = 4 << 20
_DISCARD_TIMEOUT_S = 5.0


def raise_fd_limit() -> int:
    """Raise the soft limit of open files to the hard limit; returns how many connections that allows.

    The usual default of 1024 would be used up by a thousand log followers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return max(_RESERVED_FILES, (target if soft == resource.RLIM_INFINITY else soft) - _RESERVED_FILES)


class LimitedHttpProtocol(RawTargetHttpProtocol):
    """HTTP protocol of the server, with a size limit for request heads and a count of received bytes."""

    received_bytes = 0
    opened = 0.0
    of_token: ConnectionsOfToken | None = None
    _head_bytes = 0
    _head_scope: object = None
    # Bytes received after the request was refused; None before.
    _discarded_bytes: int | None = None

    def __init__(self, *args: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened = self.loop.time()
        connections: Any = self.connections
        self._limits.add(self, connections)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limits.discard(self)
        leave_token(self)

    def data_received(self, data: bytes) -> None:
        if self._discarded_bytes is not None:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > _MAX_DISCARDED_BYTES:
                self.transport.close()
            return
        cycle = self.cycle
        super().data_received(data)
        # Most requests arrive in one piece. This one did not.
        if self.cycle is cycle:
            self._received_partially(len(data))

    def _received_partially(self, size: int) -> None:
        self.received_bytes += size
        if not self.in_head:
            return
        if self._head_scope is not self.scope:
            self._head_scope, self._head_bytes = self.scope, 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self._discarded_bytes = 0
            self.loop.call_later(_DISCARD_TIMEOUT_S, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Not a warning: the route of sessions upgrades; for all others the header has no effect."""

    @property
    def in_head(self) -> bool:
        return self.cycle is None or self.cycle.scope is not self.scope


class _Progress(NamedTuple):
    phase: str
    # Identity of the request; None before the first.
    request: object
    # Bytes received, or acknowledged by the client, when the phase began.
    byte_count: int
    since: float


class SlowClientReaper:
    """Drops connections without progress, or slower than `MIN_BYTES_PER_S`, for ``timeout_s`` seconds.

    A response for which a ``budget`` has no space left for others must be read faster.
    """

    def __init__(
        self, connections: Iterable[Any], timeout_s: float, budget: ResponseBudget | None = None
    ) -> None:
        self._connections = connections
        self._timeout_s = timeout_s
        self._budget = budget
        self._interval_s = min(max(timeout_s / 4, 0.1), _MAX_INTERVAL_S)
        self._progress: dict[Any, _Progress] = {}
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(self._interval_s, self._check_all)

    def close(self) -> None:
        self._next.cancel()

    def _check_all(self) -> None:
        self._next = self._loop.call_later(self._interval_s, self._check_all)
        now = self._loop.time()
        current: dict[Any, _Progress] = {}
        for connection in tuple(self._connections):
            if isinstance(connection, LimitedHttpProtocol):
                progress = self._check(connection, now)
                if progress is not None:
                    current[connection] = progress
        self._progress = current

    def _check(self, connection: LimitedHttpProtocol, now: float) -> _Progress | None:
        """Progress of a connection in a phase that must end; None in others."""
        phase, byte_count = _phase(connection)
        if not phase:
            return None
        request = connection.cycle
        previous = self._progress.get(connection)
        if previous is None or previous.phase != phase or previous.request is not request:
            return _Progress(phase, request, byte_count, now)
        elapsed_s = now - previous.since
        moved = byte_count - previous.byte_count
        if phase == "response" and elapsed_s >= min(self._timeout_s, _WANTED_TIMEOUT_S):
            is_wanted = self._budget is not None and self._budget.is_wanted(request.scope, time.monotonic())
            if is_wanted and moved < elapsed_s * MIN_WANTED_BYTES_PER_S:
                _drop(connection, phase)
                return None
        if elapsed_s < self._timeout_s:
            return previous
        # A request head must arrive within the timeout, at whatever speed.
        if phase != "head" and moved >= elapsed_s * MIN_BYTES_PER_S:
            return _Progress(phase, request, byte_count, now)
        _drop(connection, phase)
        return None


def _phase(connection: LimitedHttpProtocol) -> tuple[str, int]:
    transport, cycle = connection.transport, connection.cycle
    if transport.is_closing() or connection.flow.write_paused:
        return "response", _acknowledged_bytes(transport)
    if cycle is None or cycle.response_complete:
        # uvicorn has its own timer for idle connections between two requests.
        return ("head", 0) if connection.timeout_keep_alive_task is None else ("", 0)
    is_waiting_for_body = cycle.more_body and not cycle.response_started and not cycle.body
    return ("body", connection.received_bytes) if is_waiting_for_body else ("", 0)


def _acknowledged_bytes(transport: asyncio.Transport) -> int:
    """Bytes the client has acknowledged. The fill level of the send buffer says nothing: it is refilled."""
    tcp_info = b""
    # A closed socket makes no progress.
    with contextlib.suppress(OSError):
        tcp_info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return int.from_bytes(tcp_info[_BYTES_ACKED_OFFSET : _BYTES_ACKED_OFFSET + 8], sys.byteorder)


def _drop(connection: LimitedHttpProtocol, phase: str) -> None:
    if phase == "response":
        connection.transport.abort()
        return
    responded = connection.cycle is not None and connection.cycle.response_complete
    if not responded or connection.in_head:
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
