"""A query for jobs as SQL: which ids, in which order, and how many.

Three ways lead to a page without sorting everything that passes the filters: the index of the order, the
index of a filter (several values of one filter are merged), and the hits of a keyword or a tag, which come
in the list's own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from paicluster.store import search


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
    limit: int = 5000
    with_total: bool = False

    def is_first_page(self, most: int) -> bool:
        """Whether these are the newest of all jobs, and not more than so many: the end of one index."""
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
        return unfiltered and newest and not self.offset and self.limit <= most and not self.with_total


class Sql(NamedTuple):
    """A piece of SQL and the values it marks."""

    text: str
    values: tuple[Any, ...] = ()


class _Filter(NamedTuple):
    """A job passes when one of the alternatives is true of it; no two are true of the same job.

    ``indexed``: the jobs of one alternative lie in the list's order in an index.
    """

    alternatives: tuple[Sql, ...]
    indexed: bool = True


# Ties fall in the same direction as the field, so that one index serves both directions. Where a job may have
# no value, those without come last going up and first going down.
_NEWEST = ("jobs.submission_ms", "jobs.id")
_PRIORITY = "coalesce(jobs.priority, '~')"
_ORDERS = {
    "jobName": ("jobs.name", *_NEWEST),
    "submissionTime": _NEWEST,
    "username": ("jobs.username", *_NEWEST),
    "vc": ("jobs.vc", *_NEWEST),
    "retries": ("jobs.retries", *_NEWEST),
    "totalTaskNumber": ("jobs.total_tasks", *_NEWEST),
    "totalGpuNumber": ("jobs.total_gpus", *_NEWEST),
    "state": ("jobs.state", *_NEWEST),
    "completionTime": ("coalesce(jobs.completed_ms, 9223372036854775807)", *_NEWEST),
    "jobPriority": (_PRIORITY, *_NEWEST),
}
_DEFAULT_ORDER = "submissionTime"

# Without a limit the database may forget the order of a query inside a query.
_NO_LIMIT = "LIMIT 9223372036854775807"

# More alternatives than this are not worth a query each, and far more of them no database takes.
_MOST_ARMS = 8


def page_ids(query: JobQuery) -> Sql:
    """A query for the ``id`` of every job that passes, in order; ``LIMIT`` and ``OFFSET`` may follow."""
    field, _, direction = query.order.partition(",")
    if field not in _ORDERS or direction not in ("ASC", "DESC"):
        field, direction = _DEFAULT_ORDER, "DESC"
    if field == _DEFAULT_ORDER:
        hits, filters = _hits(query)
        if hits is not None:
            return _filtered(hits, filters, direction)
        arms = _branches(filters)
        if len(arms) > 1:
            merged = _join(
                " UNION ALL ", (_around("SELECT id, submission_ms FROM jobs", arm) for arm in arms)
            )
            return _around("", merged, f" ORDER BY submission_ms {direction}, id {direction}")
    keys = ", ".join(f"{column} {direction}" for column in _ORDERS[field])
    return _around("SELECT jobs.id FROM jobs", _where(_all_filters(query)), f" ORDER BY {keys}")


def count(query: JobQuery) -> Sql:
    """A query for the number of jobs that pass."""
    hits, filters = _hits(query)
    if hits is None:
        counts = (_around("(SELECT count(*) FROM jobs", arm, ")") for arm in _branches(filters))
        return _around("SELECT ", _join(" + ", counts))
    if not filters:
        return _around("SELECT count(*) FROM (", hits.select, ") AS hit")
    source = _around("SELECT count(*) FROM (", hits.select, ") AS hit CROSS JOIN jobs")
    return _join("", (source, _of_hits(filters)))


class _Hits(NamedTuple):
    """A query for jobs by their ``id``, and the columns of it that put them in the list's order."""

    select: Sql
    order: tuple[str, ...]


def _hits(query: JobQuery) -> tuple[_Hits | None, list[_Filter]]:
    """The jobs to begin with, if a keyword or tags name them, and what else must hold."""
    filters = _column_filters(query)
    if query.keyword:
        found = search.find(query.keyword)
        return _Hits(Sql(found.text, found.values), ("place",)), filters + _tag_filters(query)
    tags = dict.fromkeys(query.tags_contain)
    if not 0 < len(tags) <= _MOST_ARMS:
        return None, filters + _tag_filters(query)
    one = "SELECT job_id AS id, submission_ms FROM job_tags WHERE tag = ?"
    # UNION leaves out the second mention of a job that has two of the tags.
    select = _join(" UNION ", (Sql(one, (tag,)) for tag in tags))
    return _Hits(select, ("submission_ms", "id")), filters + _tag_filters(query, contain=False)


def _filtered(hits: _Hits, filters: list[_Filter], direction: str) -> Sql:
    keys = ", ".join(f"{column} {direction}" for column in hits.order)
    ordered = _around("", hits.select, f" ORDER BY {keys}")
    if not filters:
        return ordered
    # The join goes through the hits in their order: CROSS keeps SQLite from turning it around.
    source = _around("SELECT hit.id FROM (", ordered, f" {_NO_LIMIT}) AS hit CROSS JOIN jobs")
    return _join("", (source, _of_hits(filters)))


def _of_hits(filters: list[_Filter]) -> Sql:
    return _around(" WHERE jobs.id = hit.id AND ", _conditions(filters))


def _branches(filters: list[_Filter]) -> list[Sql]:
    """The WHERE clauses whose results, taken together, are the jobs that pass.

    One, as a rule. When the only indexed filters have several values, one for each value: the index has the
    jobs of each state in order, but not those of two.
    """
    indexed = sorted((one for one in filters if one.indexed), key=lambda one: len(one.alternatives))
    if not indexed or not 1 < len(indexed[0].alternatives) <= _MOST_ARMS:
        return [_where(filters)]
    rest = [one for one in filters if one is not indexed[0]]
    return [_where([_Filter((choice,)), *rest]) for choice in indexed[0].alternatives]


def _all_filters(query: JobQuery) -> list[_Filter]:
    filters = _column_filters(query) + _tag_filters(query)
    if query.keyword:
        hits = search.find(query.keyword)
        filters.append(
            _Filter((Sql(f"jobs.id IN (SELECT id FROM ({hits.text}))", hits.values),), indexed=False)
        )
    return filters


def _column_filters(query: JobQuery) -> list[_Filter]:
    columns = (("username", query.username), ("vc", query.vc), ("state", query.state))
    filters = [_one_of(f"jobs.{column}", values) for column, values in columns if values]
    if query.priorities:
        names = ("~" if name == "default" else name for name in query.priorities)
        filters.append(_one_of(_PRIORITY, names))
    return filters


def _one_of(column: str, values: Iterable[str]) -> _Filter:
    distinct = tuple(dict.fromkeys(values))
    if len(distinct) > _MOST_ARMS:
        return _Filter((Sql(f"{column} IN ({_marks(distinct)})", distinct),), indexed=False)
    return _Filter(tuple(Sql(f"{column} = ?", (value,)) for value in distinct))


def _tag_filters(query: JobQuery, contain: bool = True) -> list[_Filter]:
    wanted = (("IN", query.tags_contain if contain else ()), ("NOT IN", query.tags_not_contain))
    return [
        _Filter(
            (Sql(f"jobs.id {word} (SELECT job_id FROM job_tags WHERE tag IN ({_marks(tags)}))", tags),), False
        )
        for word, tags in wanted
        if tags
    ]


def _where(filters: list[_Filter]) -> Sql:
    return _around(" WHERE ", _conditions(filters)) if filters else Sql("")


def _conditions(filters: Iterable[_Filter]) -> Sql:
    return _join(" AND ", (_around("(", _join(" OR ", one.alternatives), ")") for one in filters))


def _join(word: str, pieces: Iterable[Sql]) -> Sql:
    texts, values = zip(*pieces, strict=True)
    return Sql(word.join(texts), tuple(value for some in values for value in some))


def _around(before: str, piece: Sql, after: str = "") -> Sql:
    return Sql(before + piece.text + after, piece.values)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
