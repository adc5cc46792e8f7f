"""Connections that do not come to an end: heads and bodies that never arrive, answers nobody takes.

Nothing of this costs a request anything: now and then all connections are looked at, and those that stand
where they stood are let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Whoever is slower than this, in bytes a second, is not slow but absent, or means harm.
SLOWEST = 1024
LARGEST_HEAD = 256 << 10

# Where Linux says it in `struct tcp_info`.
_BYTES_ACKED = 120

_MOST_FILES = 1 << 16
# What the server needs beside its connections: database, logs, tasks.
_OTHER_FILES = 256

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def raise_fd_limit() -> int:
    """Have as many open files as this account may; how many connections that allows.

    Usually a program gets 1024, which a thousand followers would use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(_OTHER_FILES, (wanted if soft == resource.RLIM_INFINITY else soft) - _OTHER_FILES)


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's, with a limit on a request's head, and a count of what came of its body."""

    received = 0
    _head = 0
    _head_of: object = None

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        super().data_received(data)
        # Mostly a request arrives at once. Here it did not.
        if self.cycle is cycle:
            self._arrived_in_part(len(data))

    def _arrived_in_part(self, size: int) -> None:
        self.received += size
        if not self.in_head:
            return
        if self._head_of is not self.scope:
            self._head_of, self._head = self.scope, 0
        self._head += size
        if self._head > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    @property
    def in_head(self) -> bool:
        return self.cycle is None or self.cycle.scope is not self.scope


class _Progress(NamedTuple):
    where: str
    # What request it is; None before the first.
    request: object
    # Bytes that came, or that the other side took, when this began.
    measure: int
    since: float


class SlowClientReaper:
    """Lets go of whoever stands still for ``seconds``, or moves slower than `SLOWEST` for that long."""

    def __init__(self, connections: Iterable[Any], seconds: float) -> None:
        self._connections = connections
        self._seconds = seconds
        self._every = min(max(seconds / 4, 0.1), 15.0)
        self._seen: dict[Any, _Progress] = {}
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(self._every, self._look_at_all)

    def close(self) -> None:
        self._next.cancel()

    def _look_at_all(self) -> None:
        self._next = self._loop.call_later(self._every, self._look_at_all)
        now = self._loop.time()
        seen: dict[Any, _Progress] = {}
        for connection in tuple(self._connections):
            if isinstance(connection, LimitedHttpProtocol):
                found = self._look_at(connection, now)
                if found is not None:
                    seen[connection] = found
        self._seen = seen

    def _look_at(self, connection: LimitedHttpProtocol, now: float) -> _Progress | None:
        """Where a connection stands, when that is somewhere it should not stay."""
        where, measure = _where(connection)
        if not where:
            return None
        request = connection.cycle
        before = self._seen.get(connection)
        if before is None or before.where != where or before.request is not request:
            return _Progress(where, request, measure, now)
        for_s = now - before.since
        if for_s < self._seconds:
            return before
        # A head has its time and no more, however it comes.
        if where != "head" and measure - before.measure >= for_s * SLOWEST:
            return _Progress(where, request, measure, now)
        _drop(connection, where)
        return None


def _where(connection: LimitedHttpProtocol) -> tuple[str, int]:
    transport, cycle = connection.transport, connection.cycle
    if transport.is_closing() or connection.flow.write_paused:
        return "answer", _taken(transport)
    if cycle is None or cycle.response_complete:
        # An idle connection between two requests has uvicorn's own timer.
        return ("head", 0) if connection.timeout_keep_alive_task is None else ("", 0)
    waits_for_body = cycle.more_body and not cycle.response_started and not cycle.body
    return ("body", connection.received) if waits_for_body else ("", 0)


def _taken(transport: asyncio.Transport) -> int:
    """What the other side has acknowledged so far. What still waits here would not tell: it is refilled."""
    told = b""
    # A socket that is gone has taken all it will.
    with contextlib.suppress(OSError):
        told = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return int.from_bytes(told[_BYTES_ACKED : _BYTES_ACKED + 8], sys.byteorder)


def _drop(connection: LimitedHttpProtocol, where: str) -> None:
    if where == "answer":
        connection.transport.abort()
        return
    answered = connection.cycle is not None and connection.cycle.response_complete
    if not answered or connection.in_head:
        connection.transport.write(_TIMEOUT)
    connection.transport.close()
