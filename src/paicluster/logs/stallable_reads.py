"""Reads of folders that may not answer, as on a network file system whose server is away.

Such a read cannot be cancelled: its thread waits as long as the file system does. Each has a thread of its
own, of which there are only some, and a caller waits for it no longer than the timeout. The threads do not
hold up the exit of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from paiprotocol.errors import Unavailable

T = TypeVar("T")

MAX_READS = 16
"""Reads at a time. While so many do not return, further ones wait for the timeout, and then fail."""
_TIMEOUT_S = 10.0
LONG_TIMEOUT_S = 60.0
"""Of reads that may look through a whole log."""


class StallableReads:
    """One for all folders of the server that may stall. Used on the event loop's thread."""

    def __init__(self, max_reads: int = MAX_READS, timeout_s: float = _TIMEOUT_S) -> None:
        self._free = asyncio.Semaphore(max_reads)
        self._timeout_s = timeout_s

    async def run(self, read: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """The result of a read in a thread; Unavailable when the folder does not answer in time."""
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                await self._free.acquire()
                return await self._start(read)
        except TimeoutError:
            raise Unavailable(
                "The file system of the task's log does not answer.",
                hint="Try again later; an administrator can look at the shared folder of the cluster.",
            ) from None

    def _start(self, read: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            self._free.release()
            if result.done():  # its caller waits no longer
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]

        def work() -> None:
            value, error = None, None
            try:
                value = read()
            except BaseException as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(settle, value, error)

        try:
            threading.Thread(target=work, name="stallable-read", daemon=True).start()
        except BaseException:
            self._free.release()
            raise
        return result
