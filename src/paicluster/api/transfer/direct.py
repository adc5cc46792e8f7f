"""A part's bytes taken straight from the connection by a thread: no event loop, no parser, no copies between.

Where the connection is plain, uvicorn has parsed the head of a request, and what follows is so many bytes. A
thread reads them into one buffer and writes them to the disk, at half the cost. The parser has not seen them,
so this is the connection's last request. When all these threads are busy (a slow client keeps one), or TLS is
in the way, parts come as any body does.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import ClientDisconnect, Request

_THREADS = 8
_BLOCK = 1 << 20
_PATIENCE_MS = 60_000

_pool = ThreadPoolExecutor(_THREADS, "parts")
_free = threading.Semaphore(_THREADS)

Sink = Callable[[memoryview], None]


async def take_body(request: Request, length: int, sink: Sink) -> bool:
    """Give all bytes of the body to ``sink``, in a thread; False where that cannot be done here."""
    cycle: Any = getattr(request.receive, "__self__", None)
    transport = getattr(cycle, "transport", None)
    if transport is None or not hasattr(cycle, "keep_alive") or cycle.waiting_for_100_continue:
        return False
    sock = transport.get_extra_info("socket")
    if (
        sock is None
        or transport.get_extra_info("sslcontext") is not None
        or not _free.acquire(blocking=False)
    ):
        return False
    try:
        transport.pause_reading()
        cycle.keep_alive = False
        first = bytes(cycle.body)
        cycle.body = bytearray()
        fd = os.dup(sock.fileno())
        protocol = transport.get_protocol()
        await asyncio.get_running_loop().run_in_executor(_pool, _pour, fd, first, length, sink, protocol)
    finally:
        _free.release()
    return True


def _pour(fd: int, first: bytes, length: int, sink: Sink, protocol: Any) -> None:
    # The descriptor shares its flags with that of the event loop, so it stays one that does not block.
    with socket.socket(fileno=fd) as connection:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        left = length - len(first)
        refused = _given(sink, memoryview(first))
        buffer = memoryview(bytearray(min(_BLOCK, max(left, 1))))
        filled = 0
        while left > 0:
            try:
                got = connection.recv_into(buffer[filled : filled + left])
            except BlockingIOError:
                if not ready.poll(_PATIENCE_MS):
                    raise ClientDisconnect from None
                continue
            except OSError:
                raise ClientDisconnect from None
            if not got:
                raise ClientDisconnect
            protocol.received += got
            filled += got
            left -= got
            if filled == len(buffer) or not left:
                # What was refused is read to its end all the same: else the client would not hear why.
                refused = refused or _given(sink, buffer[:filled])
                filled = 0
    if refused is not None:
        raise refused


def _given(sink: Sink, data: memoryview) -> Exception | None:
    try:
        sink(data)
    except Exception as error:
        return error
    return None
