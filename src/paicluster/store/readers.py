"""A few threads that read, each with a connection of its own. They hold no memory while nobody asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection, Engine

from openpaisdk.errors import StoreError
from paicluster.store import sqlite

# After so many seconds without a question a reader gives back what it had mapped and cached.
_REST_AFTER = 5.0

_Deliver = Callable[[Any, Exception | None], None]


class Readers:
    """Runs functions over a connection that sees one moment of the database. Used by Store alone."""

    def __init__(self, engine: Engine, path: Path, count: int) -> None:
        self._engine = engine
        self._path = path
        self._questions: SimpleQueue[tuple[Callable[[Connection], Any], _Deliver] | None] = SimpleQueue()
        self._closing = False
        # For questions so small that handing them to a thread would take longer than answering them.
        self._here: Connection | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"store-reader-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    async def ask(self, fn: Callable[[Connection], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if future.done():
                return  # the asker gave up waiting
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def deliver(result: Any, error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                pass  # that loop is closed: nobody waits any more

        self._put(fn, deliver)
        return await future

    def ask_and_wait(self, fn: Callable[[Connection], Any]) -> Any:
        done = threading.Event()
        answer: list[Any] = [None, None]

        def deliver(result: Any, error: Exception | None) -> None:
            answer[:] = result, error
            done.set()

        self._put(fn, deliver)
        done.wait()
        if answer[1] is not None:
            raise answer[1]
        return answer[0]

    def answer_here(self, fn: Callable[[Connection], Any]) -> Any:
        """On the caller's own thread, which is always the same one: the loop's."""
        if self._closing:
            raise StoreError("The cluster's database is closed.", status=503)
        try:
            if self._here is None:
                self._here = sqlite.open_glancing(self._engine)
            return self._read(self._here, fn)
        except Exception as error:
            failure = sqlite.as_store_error(error, self._path)
            if failure is None or failure is error:
                raise
            raise failure from None

    def close(self) -> None:
        """Answer what was asked, then end the threads."""
        self._closing = True
        if self._here is not None:
            self._here.close()
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join()

    def _put(self, fn: Callable[[Connection], Any], deliver: _Deliver) -> None:
        if self._closing:
            raise StoreError("The cluster's database is closed.", status=503)
        self._questions.put((fn, deliver))

    # -- on the readers' threads ------------------------------------------------------------------

    def _run(self) -> None:
        conn: Connection | None = None
        rested = True
        while True:
            try:
                question = self._questions.get(timeout=None if rested else _REST_AFTER)
            except Empty:
                rested = True
                if conn is not None:
                    sqlite.rest(conn)
                    _trim()
                continue
            if question is None:
                break
            fn, deliver = question
            try:
                if conn is None:
                    conn = sqlite.open_reader(self._engine)
                if rested:
                    sqlite.wake(conn)
                    rested = False
                result = self._read(conn, fn)
            except Exception as error:
                deliver(None, sqlite.as_store_error(error, self._path) or error)
            else:
                deliver(result, None)
        if conn is not None:
            conn.close()

    def _read(self, conn: Connection, fn: Callable[[Connection], Any]) -> Any:
        sqlite.begin(conn)
        try:
            return fn(conn)
        finally:
            sqlite.rollback(conn)


def _trim() -> None:
    """Let the C library give freed memory back to the system: a page of a list is megabytes."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass  # not glibc: nothing to be done
