"""The list of jobs: filters, orders and pages of ``GET /api/v2/jobs``, answered as ready JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, or_, select

from openpaisdk.errors import InvalidParameters
from paicluster.store.tables import job_tags, jobs

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
            return b"[" + self.json + b"]"
        return b'{"totalCount":%d,"data":[' % self.total + self.json + b"]}"


_c = jobs.c
_ORDERS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "jobName": (_c.name,),
    "submissionTime": (),
    "username": (_c.username,),
    "vc": (_c.vc,),
    "retries": (_c.retries,),
    "totalTaskNumber": (_c.total_tasks,),
    "totalGpuNumber": (_c.total_gpus,),
    "state": (_c.state,),
    # Jobs without one come last going up and first going down.
    "completionTime": (_c.completed_ms.is_(None), _c.completed_ms),
    "jobPriority": (_c.priority.is_(None), _c.priority),
}


def list_jobs(conn: Connection, query: JobQuery) -> ListPage:
    """One page of the list."""
    if not 0 <= query.limit <= LARGEST_LIMIT:
        raise InvalidParameters(f"limit must be between 0 and {LARGEST_LIMIT}, not {query.limit}.")
    if query.offset < 0:
        raise InvalidParameters(f"offset must not be negative, not {query.offset}.")
    where = _conditions(query)
    json = b""
    if query.limit:
        page = _page(query, where)
        text = conn.execute(page).scalar()
        json = b"" if text is None else str(text).encode()
    total = None
    if query.with_total:
        total = int(conn.execute(select(func.count()).select_from(jobs).where(*where)).scalar_one())
    return ListPage(json, total)


def _page(query: JobQuery, where: list[ColumnElement[bool]]) -> Select[tuple[str]]:
    field, down = _order(query.order)
    # Ties fall in the same direction, so that one index serves both directions.
    columns = (*_ORDERS[field], _c.submission_ms, _c.id)
    keys = [column.desc() if down else column.asc() for column in columns]
    ids = select(_c.id).where(*where).order_by(*keys).limit(query.limit).offset(query.offset).subquery()
    again = jobs.alias()
    texts = select(again.c.summary).select_from(ids.join(again, again.c.id == ids.c.id)).subquery()
    return select(func.aggregate_strings(texts.c.summary, ","))


def _order(text: str) -> tuple[str, bool]:
    field, _, direction = text.partition(",")
    if field in _ORDERS and direction in ("ASC", "DESC"):
        return field, direction == "DESC"
    return "submissionTime", True


def _conditions(query: JobQuery) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    for column, values in ((_c.username, query.username), (_c.vc, query.vc), (_c.state, query.state)):
        if values:
            where.append(column == values[0] if len(values) == 1 else column.in_(values))
    if query.priorities:
        where.append(_priority(query.priorities))
    if query.keyword:
        where.append(func.instr(_c.search, query.keyword) > 0)
    tagged = exists().where(job_tags.c.job_id == _c.id)
    if query.tags_contain:
        where.append(tagged.where(job_tags.c.tag.in_(query.tags_contain)))
    if query.tags_not_contain:
        where.append(~tagged.where(job_tags.c.tag.in_(query.tags_not_contain)))
    return where


def _priority(priorities: tuple[str, ...]) -> ColumnElement[bool]:
    named = tuple(name for name in priorities if name != "default")
    choices: list[ColumnElement[bool]] = []
    if "default" in priorities:
        choices.append(_c.priority.is_(None))
    if named:
        choices.append(and_(_c.priority.is_not(None), _c.priority.in_(named)))
    return or_(*choices)
