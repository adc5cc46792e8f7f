"""Query of a job listing: which ids, in which order, and how many.

Three plans give a page without sorting all matches: the index of the order, the index of a filter (several
values of one filter are merged by UNION ALL), and the matches of a keyword or a tag, which come in the order
of the listing.

Statements depend only on the shape of a query (order, number of values of each filter), so that each is
compiled once and executed with the values of a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    desc,
    func,
    literal_column,
    or_,
    select,
    union,
    union_all,
)
from sqlalchemy.sql.selectable import GenerativeSelect, Select

from paicluster.store.compiled_statements import Prepared
from paicluster.store.cross_join import cross_join
from paicluster.store.dialect_sql import DialectSql, KeywordMatch
from paicluster.store.tables import job_tags, jobs


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, in which order. Empty tuples and None filter nothing; filters are combined with AND.

    ``order`` is OpenPAI's ``field,ASC|DESC``, and ours by ``duration``; any unknown order means
    ``submissionTime,DESC``.
    ``priorities`` may contain ``default`` for jobs without one.
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
    limit: int = 5000
    with_total: bool = False

    def is_first_page(self, max_limit: int) -> bool:
        """Whether these are the newest of all jobs, at most ``max_limit``: the end of one index."""
        unfiltered = not (
            self.username
            or self.vc
            or self.state
            or self.keyword
            or self.tags_contain
            or self.tags_not_contain
            or self.priorities
        )
        newest = self.order in ("", "submissionTime,DESC")
        return unfiltered and newest and not self.offset and self.limit <= max_limit and not self.with_total


class BoundQuery(NamedTuple):
    """A compiled statement and the values of its parameters."""

    statement: Prepared
    values: dict[str, Any]


class _Shape(NamedTuple):
    """What the statement of a query depends on. Numbers are those of distinct values."""

    field: str
    direction: str
    keyword: KeywordMatch | None
    username: int
    vc: int
    state: int
    priorities: int
    tags_contain: int
    tags_not_contain: int


class _Filter(NamedTuple):
    """A job matches when one of the alternatives is true; no two are true of the same job.

    ``indexed``: the jobs of one alternative are in the order of the listing in an index.
    """

    alternatives: tuple[ColumnElement[bool], ...]
    indexed: bool = True


class _Matches(NamedTuple):
    """A query for jobs by their ``id``, and its columns that give the order of the listing."""

    query: GenerativeSelect
    order: tuple[str, ...]


# Ties are broken in the same direction as the field, so that one index serves both directions; those of
# durations in the other one, because the oldest of the jobs that run has run longest. Jobs without a value
# come last in ascending and first in descending order. The expressions must be those of the indexes.
_NEWEST = (jobs.c.submission_ms, jobs.c.id)
_PRIORITY = func.coalesce(jobs.c.priority, literal_column("'~'"))
_COMPLETION = func.coalesce(jobs.c.completed_ms, literal_column("9223372036854775807"))
_DURATION = func.coalesce(
    jobs.c.completed_ms - func.coalesce(jobs.c.launched_ms, jobs.c.completed_ms),
    literal_column("9223372036854775807"),
)
_ORDERS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "jobName": (jobs.c.name, *_NEWEST),
    "submissionTime": _NEWEST,
    "username": (jobs.c.username, *_NEWEST),
    "vc": (jobs.c.vc, *_NEWEST),
    "retries": (jobs.c.retries, *_NEWEST),
    "totalTaskNumber": (jobs.c.total_tasks, *_NEWEST),
    "totalGpuNumber": (jobs.c.total_gpus, *_NEWEST),
    "state": (jobs.c.state, *_NEWEST),
    "completionTime": (_COMPLETION, *_NEWEST),
    "duration": (_DURATION, -jobs.c.submission_ms, jobs.c.id),
    "jobPriority": (_PRIORITY, *_NEWEST),
}
_DEFAULT_ORDER = "submissionTime"

# Without a limit the database may drop the order of a subquery.
_NO_LIMIT: ColumnElement[int] = literal_column("9223372036854775807")
_NO_OFFSET: ColumnElement[int] = literal_column("0")  # else SQLAlchemy adds a parameter for SQLite
_LIMIT: ColumnElement[int] = bindparam("limit", type_=BigInteger)
_OFFSET: ColumnElement[int] = bindparam("offset", type_=BigInteger)

# More alternatives than this are not worth a query each, and the number of terms of a UNION is limited.
_MAX_BRANCHES = 8

# Lengths of longer lists are rounded up to powers of two, beyond this to multiples of it: few shapes.
_ROUNDING = 1024


# -- queries with their values ----------------------------------------------------------------------------


def page(query: JobQuery, sql: DialectSql) -> BoundQuery:
    """Query for one page: the summaries, concatenated."""
    shape, values = _shape(query, sql)
    return BoundQuery(_page_statement(shape, sql), {**values, "limit": query.limit, "offset": query.offset})


def ids(query: JobQuery, sql: DialectSql) -> BoundQuery:
    """Query for the ids of one page, in its order."""
    shape, values = _shape(query, sql)
    return BoundQuery(_ids_statement(shape, sql), {**values, "limit": query.limit, "offset": query.offset})


def count(query: JobQuery, sql: DialectSql) -> BoundQuery:
    """Query for the number of matching jobs."""
    shape, values = _shape(query, sql)
    return BoundQuery(_count_statement(shape._replace(field=_DEFAULT_ORDER, direction=""), sql), values)


def _shape(query: JobQuery, sql: DialectSql) -> tuple[_Shape, dict[str, Any]]:
    field, _, direction = query.order.partition(",")
    if field not in _ORDERS or direction not in ("ASC", "DESC"):
        field, direction = _DEFAULT_ORDER, "DESC"
    priorities = ("~" if name == "default" else name for name in query.priorities)
    lists = {
        "username": _distinct(query.username),
        "vc": _distinct(query.vc),
        "state": _distinct(query.state),
        "priorities": _distinct(priorities),
        "tags_contain": _distinct(query.tags_contain),
        "tags_not_contain": _distinct(query.tags_not_contain),
    }
    values: dict[str, Any] = {
        f"{name}_{number}": value for name, items in lists.items() for number, value in enumerate(items)
    }
    keyword = None
    if query.keyword:
        keyword = sql.keyword_match(query.keyword)
        values.update(sql.keyword_values(query.keyword))
    sizes = {name: len(items) for name, items in lists.items()}
    return _Shape(field, direction, keyword, **sizes), values


def _distinct(values: Iterable[str]) -> Sequence[str]:
    """Distinct values; of long lists the last is repeated until the length is a rounded one."""
    distinct = tuple(dict.fromkeys(values))
    size = len(distinct)
    if size <= _MAX_BRANCHES:
        return distinct
    rounded = 1 << (size - 1).bit_length() if size <= _ROUNDING else -(-size // _ROUNDING) * _ROUNDING
    return distinct + distinct[-1:] * (rounded - size)


# -- statements of a shape ----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _page_statement(shape: _Shape, sql: DialectSql) -> Prepared:
    return Prepared(sql.summaries_of(_ids(shape, sql).limit(_LIMIT).offset(_OFFSET)))


@lru_cache(maxsize=256)
def _ids_statement(shape: _Shape, sql: DialectSql) -> Prepared:
    page = _ids(shape, sql).limit(_LIMIT).offset(_OFFSET).subquery("page")
    return Prepared(select(page.c.id))


@lru_cache(maxsize=256)
def _count_statement(shape: _Shape, sql: DialectSql) -> Prepared:
    matches, filters = _matches(shape, sql)
    number: Select[Any]
    if matches is None:
        first, *rest = (
            select(func.count()).select_from(jobs).where(*branch).scalar_subquery()
            for branch in _branches(filters)
        )
        number = select(sum(rest, start=first))
    else:
        hit = matches.query.subquery("hit")
        number = select(func.count()).select_from(hit)
        if filters:
            number = (
                select(func.count())
                .select_from(cross_join(hit, jobs))
                .where(jobs.c.id == hit.c.id, _conditions(filters))
            )
    return Prepared(number)


def _ids(shape: _Shape, sql: DialectSql) -> GenerativeSelect:
    """Query for the ``id`` of every matching job, in order."""
    if shape.field == _DEFAULT_ORDER:
        matches, filters = _matches(shape, sql)
        if matches is not None:
            return _filtered(matches, filters, shape.direction, sql)
        branches = _branches(filters)
        if len(branches) > 1:
            merged = union_all(
                *(select(jobs.c.id, jobs.c.submission_ms).where(*branch) for branch in branches)
            )
            return merged.order_by(*_directed(("submission_ms", "id"), shape.direction))
    keys = _directed(_ORDERS[shape.field], shape.direction)
    return select(jobs.c.id).where(*_terms(_all_filters(shape, sql))).order_by(*keys)


def _directed(keys: Sequence[Any], direction: str) -> list[Any]:
    return [desc(key) for key in keys] if direction == "DESC" else list(keys)


def _matches(shape: _Shape, sql: DialectSql) -> tuple[_Matches | None, list[_Filter]]:
    """The jobs to start from, if a keyword or tags give them, and the remaining filters."""
    filters = _column_filters(shape)
    if shape.keyword is not None:
        return _Matches(sql.find(shape.keyword), sql.place), filters + _tag_filters(shape)
    if not 0 < shape.tags_contain <= _MAX_BRANCHES:
        return None, filters + _tag_filters(shape)
    tagged = [
        select(job_tags.c.job_id.label("id"), job_tags.c.submission_ms).where(job_tags.c.tag == tag)
        for tag in _parameters("tags_contain", shape.tags_contain)
    ]
    # UNION lists a job that has two of the tags once.
    query = tagged[0] if len(tagged) == 1 else union(*tagged)
    return _Matches(query, ("submission_ms", "id")), filters + _tag_filters(shape, contain=False)


def _filtered(matches: _Matches, filters: list[_Filter], direction: str, sql: DialectSql) -> GenerativeSelect:
    ordered = matches.query.order_by(*_directed(matches.order, direction))
    if not filters:
        return ordered
    hit = ordered.limit(_NO_LIMIT).offset(_NO_OFFSET).subquery("hit")
    joined = (
        select(hit.c.id).select_from(cross_join(hit, jobs)).where(jobs.c.id == hit.c.id, _conditions(filters))
    )
    return sql.in_order_of(joined, _directed([hit.c[name] for name in matches.order], direction))


def _branches(filters: list[_Filter]) -> list[list[ColumnElement[bool]]]:
    """The WHERE terms of each query whose results, taken together, are the matching jobs.

    Usually one query. When the only indexed filters have several values, one for each value: the index has
    the jobs of each state in order, but not those of two.
    """
    indexed = sorted((term for term in filters if term.indexed), key=lambda term: len(term.alternatives))
    if not indexed or not 1 < len(indexed[0].alternatives) <= _MAX_BRANCHES:
        return [_terms(filters)]
    rest = [term for term in filters if term is not indexed[0]]
    return [_terms([_Filter((choice,)), *rest]) for choice in indexed[0].alternatives]


# -- filters ------------------------------------------------------------------------------------------------


def _all_filters(shape: _Shape, sql: DialectSql) -> list[_Filter]:
    filters = _column_filters(shape) + _tag_filters(shape)
    if shape.keyword is not None:
        hits = sql.find(shape.keyword).subquery("hit")
        filters.append(_Filter((jobs.c.id.in_(select(hits.c.id)),), indexed=False))
    return filters


def _column_filters(shape: _Shape) -> list[_Filter]:
    columns: tuple[tuple[str, ColumnElement[Any], int], ...] = (
        ("username", jobs.c.username, shape.username),
        ("vc", jobs.c.vc, shape.vc),
        ("state", jobs.c.state, shape.state),
        ("priorities", _PRIORITY, shape.priorities),
    )
    return [_one_of(name, column, size) for name, column, size in columns if size]


def _one_of(name: str, column: ColumnElement[Any], size: int) -> _Filter:
    parameters = _parameters(name, size)
    if size > _MAX_BRANCHES:
        return _Filter((column.in_(parameters),), indexed=False)
    return _Filter(tuple(column == parameter for parameter in parameters))


def _tag_filters(shape: _Shape, contain: bool = True) -> list[_Filter]:
    filters = []
    if contain and shape.tags_contain:
        filters.append(jobs.c.id.in_(_tagged("tags_contain", shape.tags_contain)))
    if shape.tags_not_contain:
        filters.append(jobs.c.id.not_in(_tagged("tags_not_contain", shape.tags_not_contain)))
    return [_Filter((condition,), indexed=False) for condition in filters]


def _tagged(name: str, size: int) -> Select[Any]:
    return select(job_tags.c.job_id).where(job_tags.c.tag.in_(_parameters(name, size)))


def _parameters(name: str, size: int) -> list[Any]:
    return [bindparam(f"{name}_{number}") for number in range(size)]


def _terms(filters: Iterable[_Filter]) -> list[ColumnElement[bool]]:
    return [or_(*term.alternatives) for term in filters]


def _conditions(filters: Iterable[_Filter]) -> ColumnElement[bool]:
    return and_(*_terms(filters))
