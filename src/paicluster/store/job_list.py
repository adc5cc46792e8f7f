"""Job listing: a page of ``GET /api/v2/jobs`` as ready JSON, with pending reasons and causes of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection

from openpaisdk.errors import InvalidParameters
from paicluster.store import job_query
from paicluster.store.compiled_statements import execute
from paicluster.store.job_failures import causes_of
from paicluster.store.job_query import JobQuery

__all__ = [
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "JobQuery",
    "ListPage",
    "list_jobs",
    "reasons_of",
    "with_causes",
    "with_reasons",
]

DEFAULT_LIMIT = 5000
MAX_LIMIT = 50000

_REASONS_BATCH = 500
# Failed jobs of a page that have their cause, of which each is read with the end of a log. A list of more is
# for programs.
_MAX_CAUSES = 1000
_decode = msgspec.json.Decoder(list[dict[str, Any]]).decode
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class ListPage:
    """``json``: summaries, comma separated, without brackets. ``total``: number of matches, if requested."""

    json: bytes
    total: int | None

    def body(self) -> bytes:
        """The response body: an array, or with a total ``{"totalCount": …, "data": […]}``."""
        if self.total is None:
            return b"[%b]" % self.json
        return b'{"totalCount":%d,"data":[%b]}' % (self.total, self.json)


def list_jobs(conn: Connection, query: JobQuery) -> ListPage:
    """One page of the listing."""
    if not 0 <= query.limit <= MAX_LIMIT:
        raise InvalidParameters(f"limit must be between 0 and {MAX_LIMIT}, not {query.limit}.")
    if query.offset < 0:
        raise InvalidParameters(f"offset must not be negative, not {query.offset}.")
    json = _page(conn, query) if query.limit else b""
    return ListPage(json, _total(conn, query) if query.with_total else None)


def _page(conn: Connection, query: JobQuery) -> bytes:
    statement, values = _bound_page(query)
    row = statement.run(conn, **values).fetchone()
    return b"" if row is None or row[0] is None else bytes(row[0])


@lru_cache(maxsize=64)
def _bound_page(query: JobQuery) -> job_query.BoundQuery:
    """Clients request the same pages again and again."""
    return job_query.page(query)


def _total(conn: Connection, query: JobQuery) -> int:
    statement, values = job_query.count(query)
    row = statement.run(conn, **values).fetchone()
    return 0 if row is None else int(row[0])


# -- pending reasons ----------------------------------------------------------------------------------------


def with_reasons(conn: Connection, page: ListPage, degraded_reason: Callable[[str], str]) -> ListPage:
    """The same page with the pending reason of each waiting job, or None where none was reported.

    ``degraded_reason(framework)`` takes precedence over reported reasons.
    """
    if b'"WAITING"' not in page.json:
        return page
    listed = _decode(b"[%b]" % page.json)
    waiting = {f"{job['username']}~{job['name']}": job for job in listed if job["state"] == "WAITING"}
    reasons = {name: reason for name in waiting if (reason := degraded_reason(name))}
    names = [name for name in waiting if name not in reasons]
    for start in range(0, len(names), _REASONS_BATCH):
        reasons.update(reasons_of(conn, names[start : start + _REASONS_BATCH]))
    for name, job in waiting.items():
        job["reason"] = reasons.get(name)
    return ListPage(_encode(listed)[1:-1], page.total)


def with_causes(conn: Connection, page: ListPage) -> ListPage:
    """The same page; the reason of each failed job is why it failed."""
    if b'"FAILED"' not in page.json:
        return page
    listed = _decode(b"[%b]" % page.json)
    failed = {f"{job['username']}~{job['name']}": job for job in listed if job["state"] == "FAILED"}
    for name, cause in causes_of(conn, list(failed)[:_MAX_CAUSES]).items():
        failed[name]["reason"] = cause or None
    return ListPage(_encode(listed)[1:-1], page.total)


def reasons_of(conn: Connection, names: Sequence[str]) -> dict[str, str]:
    """The pending reason last reported of each of these jobs, by full name."""
    text = (
        "SELECT jobs.framework, events.message FROM jobs JOIN events ON events.job_id = jobs.id"
        f" WHERE jobs.framework IN ({_marks(names)}) AND events.pending"
        " ORDER BY events.id"
    )
    return dict(execute(conn, text, tuple(names)).fetchall())


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
