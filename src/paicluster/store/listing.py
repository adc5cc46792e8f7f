"""The list of jobs: filters, orders and pages of ``GET /api/v2/jobs``, answered as ready JSON.

The page's ids are found first, from indexes alone; then their summaries are concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from openpaisdk.errors import InvalidParameters
from paicluster.store import search
from paicluster.store.prepared import execute

DEFAULT_LIMIT = 5000
LARGEST_LIMIT = 50000


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, in which order. Empty tuples and None filter nothing; filters are combined with AND.

    ``order`` is OpenPAI's ``field,ASC|DESC``; anything it does not know means ``submissionTime,DESC``.
    ``priorities`` may hold ``default`` for jobs without one.
    """

    username: tuple[str, ...] = ()
    vc: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    keyword: str | None = None
    tags_contain: tuple[str, ...] = ()
    tags_not_contain: tuple[str, ...] = ()
    priorities: tuple[str, ...] = ()
    order: str = "submissionTime,DESC"
    offset: int = 0
    limit: int = DEFAULT_LIMIT
    with_total: bool = False


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


# Ties fall in the same direction as the field, so that one index serves both directions. Where a job may have
# no value, those without come last going up and first going down.
_ORDERS = {
    "jobName": ("name", "submission_ms", "id"),
    "submissionTime": ("submission_ms", "id"),
    "username": ("username", "submission_ms", "id"),
    "vc": ("vc", "submission_ms", "id"),
    "retries": ("retries", "submission_ms", "id"),
    "totalTaskNumber": ("total_tasks", "submission_ms", "id"),
    "totalGpuNumber": ("total_gpus", "submission_ms", "id"),
    "state": ("state", "submission_ms", "id"),
    "completionTime": ("completed_ms IS NULL", "completed_ms", "submission_ms", "id"),
    "jobPriority": ("priority IS NULL", "priority", "submission_ms", "id"),
}
_DEFAULT_ORDER = "submissionTime"


def list_jobs(conn: Connection, query: JobQuery) -> ListPage:
    """One page of the list."""
    if not 0 <= query.limit <= LARGEST_LIMIT:
        raise InvalidParameters(f"limit must be between 0 and {LARGEST_LIMIT}, not {query.limit}.")
    if query.offset < 0:
        raise InvalidParameters(f"offset must not be negative, not {query.offset}.")
    selection = _Selection(query)
    json = selection.page(conn) if query.limit else b""
    return ListPage(json, selection.count(conn) if query.with_total else None)


class _Selection:
    """The query as SQL: what is selected from, under which conditions, in which order."""

    def __init__(self, query: JobQuery) -> None:
        self._query = query
        self._where: list[str] = []
        self._values: list[Any] = []
        self._arms: tuple[str, Sequence[tuple[Any, ...]]] | None = None
        field, _, direction = query.order.partition(",")
        if field not in _ORDERS or direction not in ("ASC", "DESC"):
            field, direction = _DEFAULT_ORDER, "DESC"
        self._by_submission = field == _DEFAULT_ORDER
        self._keys = [f"{column} {direction}" for column in _ORDERS[field]]
        self._direction = direction
        for column, values in (("username", query.username), ("vc", query.vc), ("state", query.state)):
            self._one_of(column, values)
        self._priorities(query.priorities)
        self._tags(query)

    def page(self, conn: Connection) -> bytes:
        ids, values = self._page_ids()
        # The join runs through the ids in their order; CROSS keeps SQLite from turning it around.
        text = (
            "SELECT group_concat(summary, ',') FROM"
            f" (SELECT jobs.summary FROM ({ids} LIMIT ? OFFSET ?) AS page"
            " CROSS JOIN jobs ON jobs.id = page.id)"
        )
        row = execute(conn, text, (*values, self._query.limit, self._query.offset)).fetchone()
        return b"" if row is None or row[0] is None else str(row[0]).encode()

    def count(self, conn: Connection) -> int:
        query = self._query
        if query.keyword and not self._where:
            hits = search.find(query.keyword)
            text, values = f"SELECT count(*) FROM ({hits.text})", hits.values
        else:
            where, values = self._conditions()
            text = f"SELECT count(*) FROM jobs{where}"
        row = execute(conn, text, values).fetchone()
        return int(row[0]) if row is not None else 0

    def _page_ids(self) -> tuple[str, tuple[Any, ...]]:
        query = self._query
        if query.keyword and not self._where and self._by_submission:
            hits = search.find(query.keyword)
            return f"SELECT id FROM ({hits.text} ORDER BY place {self._direction})", hits.values
        where, values = self._conditions()
        return f"SELECT id FROM jobs{where} ORDER BY {', '.join(self._keys)}", values

    def _conditions(self) -> tuple[str, tuple[Any, ...]]:
        where, values = list(self._where), list(self._values)
        if self._query.keyword:
            hits = search.find(self._query.keyword)
            where.append(f"id IN (SELECT id FROM ({hits.text}))")
            values.extend(hits.values)
        return (" WHERE " + " AND ".join(where) if where else ""), tuple(values)

    def _one_of(self, column: str, values: Sequence[str]) -> None:
        if len(values) == 1:
            self._where.append(f"{column} = ?")
        elif values:
            self._where.append(f"{column} IN ({_marks(values)})")
        self._values.extend(values)

    def _priorities(self, priorities: tuple[str, ...]) -> None:
        named = [name for name in priorities if name != "default"]
        choices = []
        if named:
            # Both halves are spelled out because the index begins with the first.
            choices.append(f"((priority IS NULL) = 0 AND priority IN ({_marks(named)}))")
            self._values.extend(named)
        if len(named) < len(priorities):
            choices.append("((priority IS NULL) = 1 AND priority IS NULL)")
        if choices:
            self._where.append(choices[0] if len(choices) == 1 else "(" + " OR ".join(choices) + ")")

    def _tags(self, query: JobQuery) -> None:
        for word, tags in (("IN", query.tags_contain), ("NOT IN", query.tags_not_contain)):
            if tags:
                self._where.append(f"id {word} (SELECT job_id FROM job_tags WHERE tag IN ({_marks(tags)}))")
                self._values.extend(tags)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
