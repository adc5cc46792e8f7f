"""The list of jobs: a page of ``GET /api/v2/jobs`` as ready JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection

from openpaisdk.errors import InvalidParameters
from paicluster.store import job_query
from paicluster.store.compiled_statements import execute
from paicluster.store.job_query import JobQuery
from paicluster.store.sqlite import CONCATENATED

__all__ = ["DEFAULT_LIMIT", "LARGEST_LIMIT", "JobQuery", "ListPage", "list_jobs"]

DEFAULT_LIMIT = 5000
LARGEST_LIMIT = 50000


@dataclass(frozen=True, slots=True)
class ListPage:
    """``json``: the summaries, comma separated, without the brackets. ``total``: how many match, if asked."""

    json: bytes
    total: int | None

    def body(self) -> bytes:
        """The whole answer: an array, or with a total ``{"totalCount": …, "data": […]}``."""
        if self.total is None:
            return b"[%b]" % self.json
        return b'{"totalCount":%d,"data":[%b]}' % (self.total, self.json)


def list_jobs(conn: Connection, query: JobQuery) -> ListPage:
    """One page of the list."""
    if not 0 <= query.limit <= LARGEST_LIMIT:
        raise InvalidParameters(f"limit must be between 0 and {LARGEST_LIMIT}, not {query.limit}.")
    if query.offset < 0:
        raise InvalidParameters(f"offset must not be negative, not {query.offset}.")
    json = _page(conn, query) if query.limit else b""
    return ListPage(json, _total(conn, query) if query.with_total else None)


def _page(conn: Connection, query: JobQuery) -> bytes:
    row = execute(conn, *_page_text(query)).fetchone()
    return b"" if row is None or row[0] is None else bytes(row[0])


@lru_cache(maxsize=64)
def _page_text(query: JobQuery) -> job_query.Sql:
    """Clients ask for the same pages again and again."""
    ids = job_query.page_ids(query)
    # The ids come from indexes alone; then the join goes through them in their order (CROSS keeps SQLite from
    # turning it around) and concatenates.
    text = (
        f"SELECT {CONCATENATED} FROM (SELECT jobs.summary FROM"
        f" ({ids.text} LIMIT ? OFFSET ?) AS page CROSS JOIN jobs WHERE jobs.id = page.id)"
    )
    return job_query.Sql(text, (*ids.values, query.limit, query.offset))


def _total(conn: Connection, query: JobQuery) -> int:
    counted = job_query.count(query)
    row = execute(conn, counted.text, counted.values).fetchone()
    return 0 if row is None else int(row[0])
