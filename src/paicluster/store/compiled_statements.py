"""Statements written with SQLAlchemy Core, compiled once, executed on the driver's own cursor.

Statements on the path of every job run thousands of times a second; SQLAlchemy's work for each call would
cost more than the database. The SQL text still comes from its compiler, so it stays portable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import ClauseElement, Connection
from sqlalchemy.engine.interfaces import DBAPICursor


class Prepared:
    """A compiled statement; values are passed by the names of its bind parameters."""

    __slots__ = ("_compiled", "_statement")

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, list[str] | None]] = {}

    def run(self, conn: Connection, **values: Any) -> DBAPICursor:
        """Execute it. Rows are plain tuples of driver values (booleans as 0 and 1)."""
        return _execute(conn, *self.bind(conn, values))

    def bind(self, conn: Connection, values: dict[str, Any]) -> tuple[str, Any]:
        """SQL text and parameters for the driver of this connection."""
        text, order = self._text(conn)
        return text, values if order is None else [values[name] for name in order]

    def run_many(self, conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Execute it once for each row."""
        text, order = self._text(conn)
        cursor = _cursor(conn)
        cursor.executemany(text, rows if order is None else [[row[name] for name in order] for row in rows])
        cursor.close()

    def _text(self, conn: Connection) -> tuple[str, list[str] | None]:
        text = self._compiled.get(conn.dialect.name)
        if text is None:
            compiled = cast("Any", self._statement.compile(dialect=conn.dialect))
            text = (str(compiled), list(compiled.positiontup) if compiled.positional else None)
            self._compiled[conn.dialect.name] = text
        return text


def execute(conn: Connection, text: str, values: Sequence[Any] = ()) -> DBAPICursor:
    """Execute portable SQL on the driver's own cursor; parameters are marked with ``?`` for every driver."""
    if conn.dialect.paramstyle != "qmark":
        text = _with_percent_marks(text)
    return _execute(conn, text, values)


def _execute(conn: Connection, text: str, values: Any) -> DBAPICursor:
    cursor = _cursor(conn)
    cursor.execute(text, values)
    return cursor


def _cursor(conn: Connection) -> DBAPICursor:
    return conn.connection.cursor()


@lru_cache(maxsize=512)
def _with_percent_marks(text: str) -> str:
    # No statement has a question mark or a percent sign in a literal.
    return text.replace("?", "%s")
