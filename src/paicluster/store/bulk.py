"""Many rows in few statements.

Each step of a statement hands the interpreter's lock over and back, so rows go in by the chunk. Chunk
sizes are powers of two: few different texts, which the driver keeps prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from paicluster.store.prepared import execute

_LARGEST_CHUNK = 64


def insert_rows(
    conn: Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert ``rows``, each a tuple of values for ``columns``, in their order."""
    start, left = 0, len(rows)
    while left:
        size = min(_LARGEST_CHUNK, 1 << (left.bit_length() - 1))
        values = rows[start] if size == 1 else tuple(v for row in rows[start : start + size] for v in row)
        execute(conn, _insert_text(table, columns, size), values).close()
        start += size
        left -= size


@lru_cache(maxsize=256)
def _insert_text(table: str, columns: tuple[str, ...], size: int) -> str:
    row = "(" + ", ".join("?" * len(columns)) + ")"
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES " + ", ".join([row] * size)
