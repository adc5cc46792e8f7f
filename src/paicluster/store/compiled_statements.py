"""Statements written with SQLAlchemy, compiled once, run on the driver's own cursor.

What a job passes through on its way runs thousands of times a second; there the work SQLAlchemy does for
each call would cost more than the database. The text still comes from its compiler, so it stays portable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import ClauseElement, Connection
from sqlalchemy.engine.interfaces import DBAPICursor


class Prepared:
    """One statement; its values are given by the names of its bind parameters."""

    __slots__ = ("_compiled", "_statement")

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, list[str] | None]] = {}

    def run(self, conn: Connection, **values: Any) -> DBAPICursor:
        """Execute it. Rows come back as plain tuples of what the driver gives (booleans as 0 and 1)."""
        text, order = self._text(conn)
        return _execute(conn, text, values if order is None else [values[name] for name in order])

    def run_many(self, conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Execute it for each of the rows."""
        text, order = self._text(conn)
        cursor = _cursor(conn)
        cursor.executemany(text, rows if order is None else [[row[name] for name in order] for row in rows])
        cursor.close()

    def _text(self, conn: Connection) -> tuple[str, list[str] | None]:
        found = self._compiled.get(conn.dialect.name)
        if found is None:
            compiled = cast("Any", self._statement.compile(dialect=conn.dialect))
            found = (str(compiled), list(compiled.positiontup) if compiled.positional else None)
            self._compiled[conn.dialect.name] = found
        return found


def execute(conn: Connection, text: str, values: Sequence[Any] = ()) -> DBAPICursor:
    """Run a portable text on the driver's own cursor; values are marked with ``?`` whatever the driver."""
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
    # None of our texts has a question mark or a percent sign in a literal.
    return text.replace("?", "%s")
