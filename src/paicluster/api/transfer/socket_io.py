"""Socket I/O by threads: bodies are moved between socket and disk without the event loop and the HTTP parser.

On a connection without TLS, uvicorn has parsed the head of a request and a known number of bytes follows; the
same holds after it has written the head of a response. A thread moves these bytes between socket and disk at
a third of the CPU cost. When all these threads are busy (a slow client occupies one), or with TLS, bodies
take the normal path through the event loop.
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

from paicluster.api.routing.uvicorn_cycle import cycle_of, transport_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paiprotocol.transfer.hashing import Hash

_THREADS = 8
# Small enough to be still in the CPU cache when it is sent after it was hashed.
SEND_BLOCK_BYTES = 256 << 10
# Larger than for sending: receiving threads wake up less often, and the disk gets large writes.
RECEIVE_BUFFER_BYTES = 1 << 20
_IDLE_TIMEOUT_S = 60.0
# A client that makes no progress for this long is left to the event loop, where waiting costs no thread.
_STALL_TIMEOUT_MS = 1_000
# Per sendfile call, when the bytes need not be hashed.
_MAX_SENDFILE_BYTES = 4 << 20

_pool = ThreadPoolExecutor(2 * _THREADS, "socket-io")
_receive_slots = threading.Semaphore(_THREADS)
_send_slots = threading.Semaphore(_THREADS)

Sink = Callable[[memoryview], None]


class _RawConnection(NamedTuple):
    """uvicorn's objects of a connection."""

    cycle: Any
    transport: Any
    sock: Any


def _raw_connection(receive: Receive) -> _RawConnection | None:
    """None when uvicorn cannot be bypassed."""
    cycle, transport = cycle_of(receive), transport_of(receive)
    if transport is None or not hasattr(cycle, "keep_alive") or cycle.waiting_for_100_continue:
        return None
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None:
        return None
    return _RawConnection(cycle, transport, sock)


# -- receive -----------------------------------------------------------------------------------


async def receive_body(receive: Receive, length: int, sink: Sink) -> bool:
    """Pass all bytes of the body to ``sink`` in a thread; False when this path is not available."""
    raw = _raw_connection(receive)
    if raw is None or not raw.cycle.more_body or not _receive_slots.acquire(blocking=False):
        return False
    cycle, transport, _ = raw
    try:
        transport.pause_reading()
        # Until all bytes are received this is the connection's last request: the parser did not see its body.
        keep_alive, cycle.keep_alive = cycle.keep_alive, False
        first = bytes(cycle.body)
        cycle.body = bytearray()
        fd = os.dup(raw.sock.fileno())
        protocol = transport.get_protocol()
        await asyncio.get_running_loop().run_in_executor(
            _pool, _receive_loop, fd, first, length, sink, protocol
        )
    finally:
        _receive_slots.release()
    if keep_alive and not transport.is_closing():
        _reset_parser(protocol, cycle)
    return True


def _reset_parser(protocol: Any, cycle: Any) -> None:
    """The body was read here: a new parser, without this request's state, must parse the next request."""
    parser = httptools.HttpRequestParser(protocol)
    if hasattr(parser, "set_dangerous_leniencies"):
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    protocol.parser = parser
    protocol.begin_next_request()
    cycle.more_body = False
    cycle.keep_alive = True
    protocol.transport.resume_reading()
    cycle.flow.read_paused = False


def _receive_loop(
    fd: int,
    first: bytes,
    length: int,
    sink: Sink,
    protocol: Any,
    stall_timeout_ms: int = _STALL_TIMEOUT_MS,
) -> None:
    # The descriptor shares its flags with the event loop's, so it stays non-blocking.
    with socket.socket(fileno=fd) as connection:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        left = length - len(first)
        # Larger than what is already received, so that it is never full at the start.
        buffer = memoryview(bytearray(max(min(RECEIVE_BUFFER_BYTES, length), len(first) + 1)))
        buffer[: len(first)] = first
        filled = len(first)
        sink_error: Exception | None = None
        while left > 0:
            size = min(left, len(buffer) - filled)
            if not _wait_readable(connection, size, ready, protocol.transport, stall_timeout_ms):
                raise ClientDisconnect
            try:
                count = connection.recv_into(buffer[filled : filled + size])
            except BlockingIOError:
                continue
            except OSError:
                raise ClientDisconnect from None
            if not count:
                raise ClientDisconnect
            protocol.received_bytes += count
            filled += count
            left -= count
            if filled == len(buffer):
                # After an error the body is still read to its end: otherwise the client would not see the
                # response.
                sink_error = sink_error or _deliver(sink, buffer)
                filled = 0
        if filled:
            sink_error = sink_error or _deliver(sink, buffer[:filled])
        _set_wakeup_size(connection, 1)
    if sink_error is not None:
        raise sink_error


def _wait_readable(
    connection: socket.socket, size: int, ready: select.poll, transport: Any, stall_timeout_ms: int
) -> bool:
    """Wait for this many bytes at once: waking up for every few bytes costs more than moving them.

    From a slow client any number of bytes counts. False after the idle timeout, or when the server closes the
    connection.
    """
    _set_wakeup_size(connection, size)
    if ready.poll(stall_timeout_ms):
        return True
    _set_wakeup_size(connection, 1)
    deadline = time.monotonic() + _IDLE_TIMEOUT_S
    while not ready.poll(stall_timeout_ms):
        if transport.is_closing() or time.monotonic() > deadline:
            return False
    return True


def _set_wakeup_size(connection: socket.socket, count: int) -> None:
    """Set SO_RCVLOWAT. The kernel grows the receive buffer if needed, and wakes earlier if it cannot."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


def _deliver(sink: Sink, data: memoryview) -> Exception | None:
    try:
        sink(data)
    except Exception as error:
        return error
    return None


# -- send --------------------------------------------------------------------------------------


class SendResult(NamedTuple):
    """Bytes of a range that were sent, and that were hashed, which may be more."""

    sent: int
    hashed: int


async def send_file(
    receive: Receive,
    fd: int,
    offset: int,
    length: int,
    hasher: Hash | None = None,
    *,
    stall_timeout_ms: int = _STALL_TIMEOUT_MS,
) -> SendResult:
    """Send a range of an open file as the body of a response whose head was written, and hash it.

    When the client stalls, or this path is not available, the caller must send the rest.
    """
    raw = _raw_connection(receive)
    if raw is None or raw.cycle.chunked_encoding or not _send_slots.acquire(blocking=False):
        return SendResult(0, 0)
    try:
        cycle, transport, sock = raw
        for _ in range(_MAX_FLUSHES):
            if transport.is_closing() or not transport.get_write_buffer_size():
                break
            await asyncio.sleep(0)
        if transport.is_closing() or transport.get_write_buffer_size():
            return SendResult(0, 0)
        # Own descriptors: when the request is cancelled, its descriptors are closed while the thread may
        # still run.
        target, source = os.dup(sock.fileno()), os.dup(fd)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            _pool, _send, target, source, offset, length, hasher, transport, stall_timeout_ms
        )
        cycle.expected_content_length -= result.sent
        return result
    finally:
        _send_slots.release()


# Event loop iterations to wait until the head of a response is written to the socket.
_MAX_FLUSHES = 8


def _send(
    target: int,
    fd: int,
    offset: int,
    length: int,
    hasher: Hash | None,
    transport: Any,
    stall_timeout_ms: int,
) -> SendResult:
    """Hash by reading, send by sendfile: if the file changes in between, the receiver notices it."""
    ready = select.poll()
    ready.register(target, select.POLLOUT)
    buffer = memoryview(bytearray(SEND_BLOCK_BYTES)) if hasher is not None else None
    done = hashed = 0
    try:
        while done < length and not transport.is_closing():
            if hasher is not None and buffer is not None and hashed == done:
                count = os.preadv(fd, [buffer[: min(SEND_BLOCK_BYTES, length - done)]], offset + done)
                hasher.update(buffer[:count])
                hashed += count
            size = min(_MAX_SENDFILE_BYTES, length - done) if hasher is None else hashed - done
            try:
                sent = os.sendfile(target, fd, offset + done, size) if size else 0
            except BlockingIOError:
                if not ready.poll(stall_timeout_ms):
                    break
                continue
            if not sent:
                break  # the file was truncated
            done += sent
    except OSError:
        pass  # the client disconnected
    finally:
        os.close(target)
        os.close(fd)
    return SendResult(done, hashed)
