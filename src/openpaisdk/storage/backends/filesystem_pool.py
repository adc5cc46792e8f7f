"""Pool of fsspec's asynchronous file systems, each with an event loop and a thread of its own.

A file system of fsspec signs, hashes and sends all requests in the thread of its event loop. Transfer threads
that share one wait for each other there; with one each, all processors are used.
"""

from __future__ import annotations

import asyncio
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


class FilesystemPool:
    """``make(loop)`` returns a new file system that uses this event loop."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], Any]):
        self._make = make
        self._lock = threading.Lock()
        self._idle: list[_Member] = []
        self._pid = os.getpid()
        # After a fork the threads of the parent's event loops are missing. Its file systems are neither used
        # nor released: their finalizers would wait for those threads.
        self._inherited: list[list[_Member]] = []

    def call(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """The result of a coroutine that gets a file system which no other call uses meanwhile."""
        member = self._take()
        try:
            future = asyncio.run_coroutine_threadsafe(_run(action, member.filesystem), member.loop)
            return future.result()
        finally:
            with self._lock:
                self._idle.append(member)

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
        threading.Thread(target=self.loop.run_forever, daemon=True, name="cloud-storage").start()
        self.filesystem = make(self.loop)


async def _run(action: Callable[[Any], Awaitable[T]], filesystem: Any) -> T:
    return await action(filesystem)
