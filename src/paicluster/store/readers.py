"""Reader threads, each with its own connection. They hold no memory while idle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection

from paicluster.store.backend import Backend
from paiprotocol.errors import StoreError

# After this time without a query a reader releases what it has mapped and cached.
_IDLE_TIMEOUT_S = 5.0

_Deliver = Callable[[Any, Exception | None], None]


class Readers:
    """Runs functions over a connection that sees one snapshot of the database. Used by Store only."""

    def __init__(self, backend: Backend, count: int, *, idle_timeout_s: float = _IDLE_TIMEOUT_S) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._backend = backend
        self._queue: SimpleQueue[tuple[Callable[[Connection], Any], _Deliver] | None] = SimpleQueue()
        self._closing = False
        # For queries so small that passing them to a thread would take longer than running them.
        self._inline: Connection | None = None
        # Whether that connection was lost, and could not be opened again at once.
        self._is_lost = False
        self._is_reconnecting = False
        self._threads = [
            threading.Thread(target=self._run, name=f"store-reader-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, fn: Callable[[Connection], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def resolve(result: Any, error: Exception | None) -> None:
            if future.done():
                return  # the caller was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def deliver(result: Any, error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(resolve, result, error)
            except RuntimeError:
                pass  # the loop is closed: no caller is waiting

        self._put(fn, deliver)
        return await future

    def run_and_wait(self, fn: Callable[[Connection], Any]) -> Any:
        done = threading.Event()
        outcome: list[Any] = [None, None]

        def deliver(result: Any, error: Exception | None) -> None:
            outcome[:] = result, error
            done.set()

        self._put(fn, deliver)
        done.wait()
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def run_inline(self, fn: Callable[[Connection], Any]) -> Any:
        """Run on the caller's thread, which is always the event loop's."""
        if self._closing:
            raise StoreError("The cluster's database is closed.", status=503)
        try:
            try:
                return self._read(self._inline_connection(), fn)
            except Exception as error:
                if not self._backend.is_passing(error):
                    raise
                # An idle connection is lost when the database is restarted: most often it answers again.
                self._forget_inline()
                self._inline = self._backend.open_inline_reader()
                return self._read(self._inline, fn)
        except Exception as error:
            if self._backend.is_passing(error):
                self._is_lost = True
                self._reconnect_inline()
            failure = self._backend.as_pai_error(error)
            if failure is None or failure is error:
                raise
            raise failure from None

    def _inline_connection(self) -> Connection:
        if self._inline is None:
            if self._is_lost:
                self._reconnect_inline()
                raise StoreError(
                    "The connection to the cluster's database was lost.",
                    status=503,
                    hint="It is opened again: repeat the request.",
                )
            self._inline = self._backend.open_inline_reader()
        return self._inline

    def _reconnect_inline(self) -> None:
        """Open the connection again on another thread: that may take seconds."""
        self._forget_inline()
        if self._is_reconnecting:
            return
        self._is_reconnecting = True

        def reconnect(_: Connection) -> None:
            self._inline = self._backend.open_inline_reader()
            self._is_lost = False

        def end(result: Any, error: Exception | None) -> None:
            self._is_reconnecting = False

        self._put(reconnect, end)

    def _forget_inline(self) -> None:
        lost, self._inline = self._inline, None
        if lost is not None:
            self._backend.discard(lost)

    def close(self) -> None:
        """Finish the queued reads, then end the threads."""
        self._closing = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._inline is not None:
            self._backend.discard(self._inline)

    def _put(self, fn: Callable[[Connection], Any], deliver: _Deliver) -> None:
        if self._closing:
            raise StoreError("The cluster's database is closed.", status=503)
        self._queue.put((fn, deliver))

    # -- on the reader threads ---------------------------------------------------------------------

    def _run(self) -> None:
        conn: Connection | None = None
        idle = True
        while True:
            try:
                task = self._queue.get(timeout=None if idle else self._idle_timeout_s)
            except Empty:
                idle = True
                if conn is not None:
                    self._backend.rest_reader(conn)
                continue
            if task is None:
                break
            fn, deliver = task
            try:
                if conn is None:
                    conn = self._backend.open_reader()
                if idle:
                    self._backend.wake_reader(conn)
                    idle = False
                try:
                    result = self._read(conn, fn)
                except Exception as error:
                    if not self._backend.is_passing(error):
                        raise
                    # A read changes nothing: it is repeated once, on another connection.
                    lost, conn = conn, None
                    self._backend.discard(lost)
                    conn = self._backend.open_reader()
                    result = self._read(conn, fn)
            except Exception as error:
                deliver(None, self._backend.as_pai_error(error) or error)
            else:
                deliver(result, None)
        if conn is not None:
            self._backend.discard(conn)

    def _read(self, conn: Connection, fn: Callable[[Connection], Any]) -> Any:
        self._backend.begin(conn)
        try:
            return fn(conn)
        finally:
            self._backend.rollback(conn)
