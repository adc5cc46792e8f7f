"""Page of a job listing: the summaries that were rendered when the jobs last changed, and pending reasons."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection

from paicluster.store import job_query
from paicluster.store.compiled_statements import execute
from paicluster.store.dialect_sql import DialectSql, dialect_of
from paicluster.store.job_query import JobQuery
from paiprotocol.errors import InvalidParameters

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "JobQuery",
    "ListPage",
    "list_jobs",
    "long_page",
    "part_of_page",
    "reasons_of",
]

DEFAULT_LIMIT = 5000
MAX_LIMIT = 50000


@dataclass(frozen=True, slots=True)
class ListPage:
    """``summaries``: rendered texts, comma separated. ``total``: number of matches, if requested."""

    summaries: bytes
    total: int | None


def list_jobs(conn: Connection, query: JobQuery) -> ListPage:
    """One page of the listing."""
    check_page(query)
    summaries = _page(conn, query) if query.limit else b""
    return ListPage(summaries, _total(conn, query) if query.with_total else None)


def check_page(query: JobQuery) -> None:
    """Raise InvalidParameters for a page that no list has."""
    if not 0 <= query.limit <= MAX_LIMIT:
        raise InvalidParameters(f"limit must be between 0 and {MAX_LIMIT}, not {query.limit}.")
    if query.offset < 0:
        raise InvalidParameters(f"offset must not be negative, not {query.offset}.")


def long_page(conn: Connection, query: JobQuery) -> tuple[array[int], int | None]:
    """The ids of a page that is read in parts, by `part_of_page`, and the number of matches, if requested."""
    check_page(query)
    statement, values = job_query.ids(query, dialect_of(conn))
    ids = array("q", (row[0] for row in statement.run(conn, **values).fetchall()))
    return ids, _total(conn, query) if query.with_total else None


def part_of_page(conn: Connection, ids: Sequence[int]) -> bytes:
    """Summaries of these jobs in this order; those that were deleted since are left out."""
    text = f"SELECT id, summary FROM jobs WHERE id IN ({_marks(ids)})"
    summaries = dict(execute(conn, text, tuple(ids)).fetchall())
    return ",".join(summaries[job_id] for job_id in ids if job_id in summaries).encode()


def _page(conn: Connection, query: JobQuery) -> bytes:
    statement, values = _bound_page(query, dialect_of(conn))
    row = statement.run(conn, **values).fetchone()
    if row is None or row[0] is None:
        return b""
    return row[0].encode() if isinstance(row[0], str) else bytes(row[0])


@lru_cache(maxsize=64)
def _bound_page(query: JobQuery, sql: DialectSql) -> job_query.BoundQuery:
    """Compiled query of a page; cached, because clients request the same pages again and again."""
    return job_query.page(query, sql)


def _total(conn: Connection, query: JobQuery) -> int:
    statement, values = job_query.count(query, dialect_of(conn))
    row = statement.run(conn, **values).fetchone()
    return 0 if row is None else int(row[0])


def reasons_of(conn: Connection, names: Sequence[str]) -> dict[str, str]:
    """The pending reason last reported of each of these jobs, by full name."""
    text = (
        "SELECT jobs.framework, events.message FROM jobs JOIN events ON events.job_id = jobs.id"
        f" WHERE jobs.framework IN ({_marks(names)}) AND events.pending"
        " ORDER BY events.id"
    )
    return dict(execute(conn, text, tuple(names)).fetchall())


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
