"""Pool of fsspec's asynchronous file systems, each with an event loop and a thread of its own.

A file system of fsspec signs, hashes and sends all requests in the thread of its event loop. Transfer threads
that share one wait for each other there; with one each, all processors are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from concurrent.futures import CancelledError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future
    from typing import Any, TypeVar

    T = TypeVar("T")

_CLOSE_TIMEOUT_S = 5.0


class CallInterrupted(Exception):
    """A call was abandoned: it took too long, or the pool was closed."""


class FilesystemPool:
    """``make(loop)`` returns a file system that uses this event loop; ``close`` closes its connections."""

    def __init__(
        self,
        make: Callable[[asyncio.AbstractEventLoop], Any],
        close: Callable[[Any], Awaitable[None]],
    ):
        self._make = make
        self._close = close
        self._lock = threading.Lock()
        self._idle: list[_Member] = []
        self._running: set[Future[Any]] = set()
        self._is_closed = False
        self._is_stopped = False
        self._pid = os.getpid()
        # After a fork the threads of the parent's event loops are missing. Its file systems are neither used
        # nor released: their finalizers would wait for those threads.
        self._inherited: list[list[_Member]] = []

    def call(self, action: Callable[[Any], Awaitable[T]], timeout_s: float | None = None) -> T:
        """The result of a coroutine that gets a file system which no other call uses meanwhile.

        Raises CallInterrupted after ``timeout_s``.
        """
        member = self._take()
        future = asyncio.run_coroutine_threadsafe(_run(action, member.filesystem, timeout_s), member.loop)
        with self._lock:
            self._running.add(future)
            is_stopped = self._is_stopped
        if is_stopped:
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise CallInterrupted from None
        finally:
            with self._lock:
                self._running.discard(future)
                is_closed = self._is_closed
                if not is_closed:
                    self._idle.append(member)
            if is_closed:
                member.close(self._close)

    def close(self, *, cancels_calls: bool = False) -> None:
        """Close the file systems and end their threads: those in use when their calls are done.

        A later call makes a file system for itself. ``cancels_calls``: calls raise an error, also later ones.
        """
        with self._lock:
            self._is_closed = True
            self._is_stopped = self._is_stopped or cancels_calls
            idle, self._idle = self._idle, []
            running = tuple(self._running) if cancels_calls else ()
            is_inherited = self._pid != os.getpid()
        for future in running:
            future.cancel()
        if not is_inherited:
            for member in idle:
                member.close(self._close)

    def _take(self) -> _Member:
        with self._lock:
            if self._pid != os.getpid():
                self._inherited.append(self._idle)
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return _Member(self._make)


class _Member:
    __slots__ = ("filesystem", "loop")

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], Any]):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run_loop, daemon=True, name="cloud-storage").start()
        self.filesystem = make(self.loop)

    def _run_loop(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def close(self, close_filesystem: Callable[[Any], Awaitable[None]]) -> None:
        """Close its connections and end its thread, without waiting for either."""
        filesystem = self.filesystem
        # Those of fsspec would wait for the thread, at the exit of the process at the latest.
        for finalizer in list(getattr(weakref.finalize, "_registry", ())):
            registered = finalizer.peek()
            if registered is not None and registered[0] is filesystem:
                finalizer.detach()

        async def close() -> None:
            # It is used no more: what its libraries say to that matters to no call.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await close_filesystem(filesystem)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(close(), self.loop)


async def _run(action: Callable[[Any], Awaitable[T]], filesystem: Any, timeout_s: float | None) -> T:
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            return await action(filesystem)
    except TimeoutError:
        if deadline.expired():
            raise CallInterrupted from None
        raise  # of the libraries
