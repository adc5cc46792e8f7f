"""Copy of a database of SQLite into one of PostgreSQL, compared row by row, in one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Boolean, Float, Table

from paicluster.store import schema_version, sqlite
from paicluster.store.address import DatabaseAddress
from paicluster.store.postgresql import connections
from paicluster.store.postgresql.backend import PostgresqlBackend
from paicluster.store.tables import metadata, user_groups
from paiprotocol.errors import StoreError

Row = tuple[Any, ...]

_CHECK = "Find the rows with paicluster check-store; --repair moves such jobs to a file."
_SEQUENCES = {"jobs": "jobs_id_seq", "events": "events_id_seq"}
_MASK = (1 << 64) - 1
# Rows that are read at once.
_BLOCK = 2000


class Content(NamedTuple):
    """Number of the rows of a table, and a sum over their hashes, which no order changes."""

    rows: int
    checksum: int


def copy_database(source: Path, address: DatabaseAddress, report: Callable[[str], None]) -> dict[str, int]:
    """Copy all rows, and mark the source as moved. The caller holds the lock of the home.

    Nothing is left of an interrupted copy; one that was interrupted after its commit is only compared.
    """
    backend = PostgresqlBackend(address)
    conn = backend.open()
    raw = connections.raw_connection(conn)
    try:
        with closing(sqlite3.connect(sqlite.read_only_uri(source), uri=True)) as old:
            old.execute("BEGIN")
            with raw.transaction():
                if not _is_new(raw):
                    report(f"The database {address} has rows already: comparing them.")
                else:
                    _copy(old, raw, report)
                counts = _compare(old, raw, report)
    except (sqlite3.Error, psycopg.Error, UnicodeDecodeError) as error:
        failure = backend.as_pai_error(error) or sqlite.as_store_error(error, source)
        first = str(error).strip().splitlines()[0]
        raise failure or StoreError(
            f"The database {source} could not be copied: {first}.", hint=_CHECK
        ) from None
    finally:
        connections.discard(conn)
        backend.close()
    schema_version.mark_moved(source)
    return counts


def _tables() -> list[Table]:
    """All tables, each after those that it refers to."""
    return list(metadata.sorted_tables)


def _columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def _is_new(raw: psycopg.Connection[Any]) -> bool:
    """Whether there is nothing but what every new database has."""
    return all(
        table is user_groups or raw.execute(_text(f"SELECT 1 FROM {table.name} LIMIT 1")).fetchone() is None
        for table in _tables()
    )


def _copy(old: sqlite3.Connection, raw: psycopg.Connection[Any], report: Callable[[str], None]) -> None:
    raw.execute(_text(f"DELETE FROM {user_groups.name}"))
    for table in _tables():
        report(f"Copying {table.name}.")
        with raw.cursor().copy(_text(f"COPY {table.name} ({_columns(table)}) FROM STDIN")) as copy:
            for row in _old_rows(old, table):
                copy.write_row(row)
    for name, sequence in _SEQUENCES.items():
        found = old.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,)).fetchone()
        last = 0 if found is None else int(found[0])
        raw.execute("SELECT setval(%s, %s, %s)", (sequence, max(last, 1), last > 0))
    raw.execute("ANALYZE")


def _compare(
    old: sqlite3.Connection, raw: psycopg.Connection[Any], report: Callable[[str], None]
) -> dict[str, int]:
    counts = {}
    for table in _tables():
        report(f"Comparing {table.name}.")
        before, after = _content(_old_rows(old, table)), _content(_new_rows(raw, table))
        if before != after:
            raise StoreError(
                f"The table {table.name} differs: {before.rows} rows were to be copied, the database has "
                f"{after.rows}{' with other values' if before.rows == after.rows else ''}.",
                hint="Copy into an empty database: createdb NAME",
            )
        counts[table.name] = before.rows
    return counts


def _old_rows(old: sqlite3.Connection, table: Table) -> Iterator[Row]:
    """As PostgreSQL has them: SQLite knows neither truth values nor, in a column of numbers, their kind."""
    kinds = [
        bool if isinstance(column.type, Boolean) else float if isinstance(column.type, Float) else None
        for column in table.columns
    ]
    for row in old.execute(f'SELECT {_columns(table)} FROM "{table.name}"'):
        yield tuple(
            value if kind is None or value is None else kind(value)
            for value, kind in zip(row, kinds, strict=True)
        )


def _new_rows(raw: psycopg.Connection[Any], table: Table) -> Iterator[Row]:
    with raw.cursor(name="compared") as cursor:
        cursor.itersize = _BLOCK
        cursor.execute(_text(f"SELECT {_columns(table)} FROM {table.name}"))
        yield from cursor


def _content(rows: Iterator[Row]) -> Content:
    count = checksum = 0
    for row in rows:
        count += 1
        digest = hashlib.blake2b(repr(row).encode(errors="surrogatepass"), digest_size=8).digest()
        checksum = (checksum + int.from_bytes(digest, "big")) & _MASK
    return Content(count, checksum)


def _text(statement: str) -> Any:
    """A statement made of the names of our tables; psycopg asks for a literal."""
    return statement
