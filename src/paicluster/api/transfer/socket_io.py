"""Bytes taken straight from a connection, or put straight on it, by a thread: neither event loop nor parser.

Where a connection is plain, uvicorn has parsed the head of a request, and what follows is so many bytes; when
it has written the head of an answer, so many bytes follow too. A thread moves them between socket and disk at
a third of the cost. When all these threads are busy (a slow client keeps one), or TLS is in the way, bytes go
the way of any body.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httptools
from starlette.requests import ClientDisconnect
from starlette.types import Receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.fileio.hashing import Hash

_THREADS = 8
BLOCK = 256 << 10
"""Small enough to be still in the processor's cache when it is sent after it was hashed."""
AT_ONCE = 1 << 20
"""What arrives is gathered for longer: the threads that receive wake each other less often then, and the disk
is given as much at once as suits it."""
_IDLE_TIMEOUT_S = 60.0
# Whoever takes nothing for this long is waited for by the event loop, which has time.
_STANDSTILL_MS = 1_000
# In one call, where nobody looks at the bytes.
_LONG = 4 << 20

_pool = ThreadPoolExecutor(2 * _THREADS, "direct")
_free_to_take = threading.Semaphore(_THREADS)
_free_to_give = threading.Semaphore(_THREADS)

Sink = Callable[[memoryview], None]


class _Line(NamedTuple):
    """A connection as uvicorn holds it."""

    cycle: Any
    transport: Any
    sock: Any


def _line(receive: Receive) -> _Line | None:
    """None where bytes cannot go past uvicorn."""
    cycle: Any = getattr(receive, "__self__", None)
    transport = getattr(cycle, "transport", None)
    if transport is None or not hasattr(cycle, "keep_alive") or cycle.waiting_for_100_continue:
        return None
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None:
        return None
    return _Line(cycle, transport, sock)


# -- in ----------------------------------------------------------------------------------------


async def receive_body(receive: Receive, length: int, sink: Sink) -> bool:
    """Give all bytes of the body to ``sink``, in a thread; False where that cannot be done here."""
    line = _line(receive)
    if line is None or not line.cycle.more_body or not _free_to_take.acquire(blocking=False):
        return False
    cycle, transport, _ = line
    try:
        transport.pause_reading()
        # Unless everything goes well this is the connection's last request: the parser did not see its body.
        keep_alive, cycle.keep_alive = cycle.keep_alive, False
        first = bytes(cycle.body)
        cycle.body = bytearray()
        fd = os.dup(line.sock.fileno())
        protocol = transport.get_protocol()
        await asyncio.get_running_loop().run_in_executor(
            _pool, _receive_loop, fd, first, length, sink, protocol
        )
    finally:
        _free_to_take.release()
    if keep_alive and not transport.is_closing():
        _begin_anew(protocol, cycle)
    return True


def _begin_anew(protocol: Any, cycle: Any) -> None:
    """The body is taken: what comes next is a new request, for a parser that knows nothing of this one."""
    parser = httptools.HttpRequestParser(protocol)
    if hasattr(parser, "set_dangerous_leniencies"):
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    protocol.parser = parser
    cycle.more_body = False
    cycle.keep_alive = True
    protocol.transport.resume_reading()
    cycle.flow.read_paused = False


def _receive_loop(fd: int, first: bytes, length: int, sink: Sink, protocol: Any) -> None:
    # The descriptor shares its flags with that of the event loop, so it stays one that does not block.
    with socket.socket(fileno=fd) as connection:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        left = length - len(first)
        # Never full before something is received into it.
        buffer = memoryview(bytearray(max(min(AT_ONCE, length), len(first) + 1)))
        buffer[: len(first)] = first
        filled = len(first)
        refused: Exception | None = None
        while left > 0:
            wanted = min(left, len(buffer) - filled)
            if not _arrives(connection, wanted, ready, protocol.transport):
                raise ClientDisconnect
            try:
                got = connection.recv_into(buffer[filled : filled + wanted])
            except BlockingIOError:
                continue
            except OSError:
                raise ClientDisconnect from None
            if not got:
                raise ClientDisconnect
            protocol.received += got
            filled += got
            left -= got
            if filled == len(buffer):
                # What was refused is read to its end all the same: else the client would not hear why.
                refused = refused or _given(sink, buffer)
                filled = 0
        if filled:
            refused = refused or _given(sink, buffer[:filled])
        _wake_at(connection, 1)
    if refused is not None:
        raise refused


def _arrives(connection: socket.socket, wanted: int, ready: select.poll, transport: Any) -> bool:
    """Wait for so many bytes at once: to wake up for every few of them costs more than to move them.

    Of a slow client whatever there is; not for ever, and not when the server hangs up.
    """
    _wake_at(connection, wanted)
    if ready.poll(_STANDSTILL_MS):
        return True
    _wake_at(connection, 1)
    ends = time.monotonic() + _IDLE_TIMEOUT_S
    while not ready.poll(_STANDSTILL_MS):
        if transport.is_closing() or time.monotonic() > ends:
            return False
    return True


def _wake_at(connection: socket.socket, count: int) -> None:
    """The kernel makes room for them where it has to, and wakes earlier where it cannot."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


def _given(sink: Sink, data: memoryview) -> Exception | None:
    try:
        sink(data)
    except Exception as error:
        return error
    return None


# -- out ---------------------------------------------------------------------------------------


class SendResult(NamedTuple):
    """How much of a range was sent, and how much of it was hashed, which may be more."""

    sent: int
    hashed: int


async def send_file(
    receive: Receive, fd: int, offset: int, length: int, made: Hash | None = None
) -> SendResult:
    """Send a range of an open file as the body of an answer whose head is on its way, and hash it.

    Where a client stands still, or this cannot be done here, the rest is for the caller.
    """
    line = _line(receive)
    if line is None or line.cycle.chunked_encoding or not _free_to_give.acquire(blocking=False):
        return SendResult(0, 0)
    try:
        cycle, transport, sock = line
        for _ in range(_FLUSHES):
            if transport.is_closing() or not transport.get_write_buffer_size():
                break
            await asyncio.sleep(0)
        if transport.is_closing() or transport.get_write_buffer_size():
            return SendResult(0, 0)
        # Both its own: whoever is cancelled closes his, and the thread goes on for a moment.
        to, source = os.dup(sock.fileno()), os.dup(fd)
        loop = asyncio.get_running_loop()
        given = await loop.run_in_executor(_pool, _send, to, source, offset, length, made, transport)
        cycle.expected_content_length -= given.sent
        return given
    finally:
        _free_to_give.release()


# The head of an answer goes out when the event loop comes round.
_FLUSHES = 8


def _send(to: int, fd: int, offset: int, length: int, made: Hash | None, transport: Any) -> SendResult:
    """What is hashed is read, what is sent is not: should they differ, whoever receives it notices."""
    ready = select.poll()
    ready.register(to, select.POLLOUT)
    buffer = memoryview(bytearray(BLOCK)) if made is not None else None
    done = hashed = 0
    try:
        while done < length and not transport.is_closing():
            if made is not None and buffer is not None and hashed == done:
                got = os.preadv(fd, [buffer[: min(BLOCK, length - done)]], offset + done)
                made.update(buffer[:got])
                hashed += got
            most = min(_LONG, length - done) if made is None else hashed - done
            try:
                sent = os.sendfile(to, fd, offset + done, most) if most else 0
            except BlockingIOError:
                if not ready.poll(_STANDSTILL_MS):
                    break
                continue
            if not sent:
                break  # the file became shorter
            done += sent
    except OSError:
        pass  # the client is gone
    finally:
        os.close(to)
        os.close(fd)
    return SendResult(done, hashed)
