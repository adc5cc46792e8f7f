"""Bulk insert: many rows in few statements.

Each execution of a statement releases the interpreter's lock and may wait to get it back, so rows are
inserted in chunks. Small chunks have any size, larger ones are powers of two: few different texts, which the
driver keeps prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection

from paicluster.store.compiled_statements import execute

_MAX_EXACT_CHUNK = 16
_MAX_CHUNK = 64

_T = TypeVar("_T")


def chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """All values in order, in as few chunks as the statement sizes allow."""
    start, remaining = 0, len(values)
    while remaining:
        size = (
            remaining if remaining <= _MAX_EXACT_CHUNK else min(_MAX_CHUNK, 1 << (remaining.bit_length() - 1))
        )
        yield values[start : start + size]
        start += size
        remaining -= size


def insert_rows(
    conn: Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert ``rows``, each a tuple of values for ``columns``, in their order."""
    for chunk in chunks(rows):
        values = chunk[0] if len(chunk) == 1 else tuple(v for row in chunk for v in row)
        execute(conn, _insert_text(table, columns, len(chunk)), values).close()


@lru_cache(maxsize=256)
def _insert_text(table: str, columns: tuple[str, ...], size: int) -> str:
    row = "(" + ", ".join("?" * len(columns)) + ")"
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES " + ", ".join([row] * size)
