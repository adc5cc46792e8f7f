"""Backend: one database program as the store uses it.

:mod:`.sqlite_backend` and :mod:`.postgresql.backend` implement it. What they differ in when they are asked,
and not in how they are used, is in :mod:`.dialect_sql`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from paiprotocol.errors import PaiError


class WriterRecovery(NamedTuple):
    """After a failure of the connection or of the database: how the writer goes on.

    ``is_committed``: the transaction was committed after all; otherwise it can be repeated.
    """

    conn: Connection
    is_committed: bool


class Backend(Protocol):
    """Connections and transactions of one database, and what its errors mean."""

    name: str
    """What messages call the database."""

    def open(self) -> Connection:
        """Open, create or upgrade the database; the connection of the writer."""

    def closing(self) -> None:
        """Called when all writes are done, before the writer's connection is closed."""

    def close(self) -> None:
        """Called when all connections are closed."""

    # -- connections ------------------------------------------------------------------------------

    def open_reader(self) -> Connection:
        """A connection that cannot write."""

    def open_inline_reader(self) -> Connection:
        """A reader for single rows, on the thread of the event loop."""

    def discard(self, conn: Connection) -> None:
        """Close a connection that may be lost."""

    def wake_reader(self, conn: Connection) -> None:
        """Called when a reader that was idle is used again."""

    def rest_reader(self, conn: Connection) -> None:
        """Called when a reader becomes idle."""

    # -- transactions -----------------------------------------------------------------------------

    def begin(self, conn: Connection) -> None:
        """Begin a transaction, as the connection's kind needs it."""

    def commit(self, conn: Connection) -> None:
        """Commit; durable when it returns."""

    def rollback(self, conn: Connection) -> None:
        """Roll back; without effect on a connection that is lost."""

    def transaction_lost(self, conn: Connection) -> bool:
        """Whether the whole transaction is rolled back already, and not only a statement failed."""

    def probe(self, conn: Connection) -> None:
        """Write without changing anything: a full disk shows at the commit."""

    # -- failures ---------------------------------------------------------------------------------

    def as_pai_error(self, error: BaseException) -> PaiError | None:
        """Message for users of an error of the database; None for any other error.

        A `StoreError` is a failure of the database itself, which what was run has no part in.
        """

    def is_passing(self, error: BaseException) -> bool:
        """Whether the error says nothing about what was run: it may succeed when it is repeated."""

    def recover_writer(self, conn: Connection, error: BaseException, attempt: int) -> WriterRecovery | None:
        """After a passing error of the ``attempt``-th try of a transaction; None: report the error."""
