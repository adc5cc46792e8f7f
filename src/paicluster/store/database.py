"""Store: opens the database, writes through one writer thread, reads through a few reader threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from paicluster.store.address import DatabaseAddress
from paicluster.store.backend import Backend
from paicluster.store.change_feed import ChangeFeed
from paicluster.store.readers import Readers
from paicluster.store.rows import SummaryRenderer
from paicluster.store.sqlite_backend import SqliteBackend
from paicluster.store.writer import BatchOp, Writer, no_summary
from paiprotocol.errors import StoreError

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")

_READER_THREADS = 3


class Store:
    """The cluster's database. ``await store.write(fn)`` returns when the changes of ``fn`` are on disk.

    ``fn`` gets the connection inside a transaction, on another thread; it must not block. Writes awaited one
    after another are applied in that order; those queued at the same time share a commit.
    """

    def __init__(self, backend: Backend, writer: Connection, render_summary: SummaryRenderer) -> None:
        self.changes = ChangeFeed()
        self._backend = backend
        self._writer = Writer(writer, backend, self.changes, render_summary)
        self._readers = Readers(backend, _READER_THREADS)
        self._closed = False

    @classmethod
    def open(cls, database: Path | DatabaseAddress, render_summary: SummaryRenderer = no_summary) -> Store:
        """Open, create or upgrade the database; StoreError: the reason in one sentence.

        Jobs are written only with ``render_summary``: lists show what it rendered when a job last changed.
        """
        backend = SqliteBackend(database) if isinstance(database, Path) else _postgresql(database)
        return cls(backend, backend.open(), render_summary)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` in the next commit. Its error is raised to the caller and undoes only its own changes.

        Functions of this package record which jobs they change; others use :func:`paicluster.store.touch`.
        Cancelling the caller does not cancel the write.
        """
        result: T = await self._writer.submit(fn)
        return result

    async def write_batched(self, kind: BatchOp[I, R], item: I) -> R:
        """As :meth:`write`, but all items of one kind in a commit are passed to one function together."""
        result: R = await self._writer.submit(None, kind, item)
        return result

    async def probe_write(self) -> None:
        """Check that the database can be written; StoreError: the reason why not."""
        await self._writer.submit(self._backend.probe)

    async def write_failure(self) -> StoreError | None:
        """Why the last write failed, unless the database can be written again."""
        if self._writer.failure is None:
            return None
        try:
            await self.probe_write()
        except StoreError as error:
            return error
        return None

    def write_sync(self, fn: Callable[[Connection], T]) -> T:
        """For commands and start-up; blocks the thread."""
        result: T = self._writer.submit_and_wait(fn)
        return result

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` on a reader thread; all its queries see one snapshot of the database."""
        result: T = await self._readers.run(fn)
        return result

    def read_inline(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` on the event loop's thread: only for a few rows read by their keys.

        That takes less time than passing the query to a thread and back.
        """
        result: T = self._readers.run_inline(fn)
        return result

    def read_sync(self, fn: Callable[[Connection], T]) -> T:
        """For commands and start-up; blocks the thread."""
        result: T = self._readers.run_and_wait(fn)
        return result

    def queue_age(self) -> float:
        """Seconds the oldest write has been queued; 0 when there is none."""
        return self._writer.queue_age()

    @property
    def commits(self) -> int:
        """Number of commits since the store was opened."""
        return self._writer.commits

    def close(self) -> None:
        """Finish every queued write and running read, then close. Later calls are rejected."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        self._readers.close()
        self._backend.closing()
        self._writer.connection.close()
        self._backend.close()


def _postgresql(address: DatabaseAddress) -> Backend:
    try:
        from paicluster.store.postgresql.backend import PostgresqlBackend
    except ImportError as error:
        raise StoreError(
            f"A database of PostgreSQL needs psycopg, which cannot be imported ({error}).",
            hint="Install it: pip install 'openpaisdk[postgresql]'",
        ) from None
    return PostgresqlBackend(address)
