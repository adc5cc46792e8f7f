"""The store itself: opening it, writing through the one writer, reading through a few readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine

from paicluster.store import schema_version, sqlite
from paicluster.store.change_feed import ChangeFeed
from paicluster.store.readers import Readers
from paicluster.store.writer import BatchOp, Writer

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

_READERS = 3


class Store:
    """The cluster's database. ``await store.write(fn)`` returns when ``fn``'s changes are on disk.

    ``fn`` gets the connection inside a transaction, on another thread; it must not wait for anything.
    Writes awaited one after another happen in that order; those queued at once share a commit.
    """

    def __init__(self, engine: Engine, writer: Connection, path: Path) -> None:
        self.path = path
        self.changes = ChangeFeed()
        self._engine = engine
        self._write_connection = writer
        self._writer = Writer(writer, path, self.changes)
        self._readers = Readers(engine, path, _READERS)
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open, create or upgrade the database; a StoreError says in one sentence what is wrong with it."""
        engine = sqlite.make_engine(path)
        try:
            sqlite.make_file(path)
            conn = sqlite.open_writer(engine)
            sqlite.probe_writable(conn)
            schema_version.migrate(conn, path)
        except Exception as error:
            engine.dispose()
            failure = sqlite.as_store_error(error, path)
            if failure is None:
                raise
            raise failure from None
        return cls(engine, conn, path)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` in the next commit. What it raises reaches the caller, and only its changes are undone.

        Functions of this room note which jobs they change; others say so with
        :func:`paicluster.store.touch`. A caller that is cancelled does not take its write back.
        """
        result: T = await self._writer.submit(fn)
        return result

    async def write_batched(self, kind: BatchOp[I, R], item: I) -> R:
        """As :meth:`write`, but all items of one kind in a commit are handed to one function together."""
        result: R = await self._writer.submit(None, kind, item)
        return result

    async def probe_write(self) -> None:
        """Whether anything can be written: a StoreError says why not."""
        await self._writer.submit(sqlite.rewrite_a_page)

    def write_sync(self, fn: Callable[[Connection], T]) -> T:
        """For command lines and start-up; the thread waits."""
        result: T = self._writer.submit_and_wait(fn)
        return result

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` on a reader's thread; all its queries see one moment of the database."""
        result: T = await self._readers.ask(fn)
        return result

    def read_inline(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` here and now, on the loop's thread: for a few rows found by their keys, nothing more.

        Such an answer takes less time than handing the question to a thread and back.
        """
        result: T = self._readers.answer_here(fn)
        return result

    def read_sync(self, fn: Callable[[Connection], T]) -> T:
        """For command lines and start-up; the thread waits."""
        result: T = self._readers.ask_and_wait(fn)
        return result

    def queue_age(self) -> float:
        """Seconds the oldest write has been waiting; 0 when there is none."""
        return self._writer.queue_age()

    @property
    def commits(self) -> int:
        """How many commits have been made since the store was opened."""
        return self._writer.commits

    def close(self) -> None:
        """Finish every queued write and running read, then close. The store refuses whatever comes later."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        self._readers.close()
        # The writer's connection closes last, moves the log into the database and removes it.
        self._write_connection.close()
        self._engine.dispose()
