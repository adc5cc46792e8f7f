"""Order of lists of jobs by a parameter or a metric, which no index has.

The values of all jobs that match are read for it, so that they may not be many, nor take long.
"""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from paicluster.api.jobs.order_cache import Order
from paicluster.api.v2.job_columns import parameter_values, read_metrics, run_config
from paicluster.store import job_columns, job_list
from paicluster.store.job_columns import JobSize
from paicluster.store.job_query import JobQuery

MAX_JOBS = 10_000
# Ten thousand jobs take a quarter of a second.
_TIMEOUT_S = 10.0
# Jobs, and tasks of several jobs, that are read at once.
_BLOCK = 256
_BLOCK_TASKS = 10_000
_PARTS = ("last", "min", "max")
_ORDER = re.compile(r"(?:parameter\.(.+)|metric\.(.+)\.(last|min|max)),(ASC|DESC)", re.DOTALL)
OnRunning = Callable[[Collection[int]], None]
_HINT = "Filter the jobs by user, state, virtual cluster, tag or keyword."


@dataclass(frozen=True, slots=True)
class ValueOrder:
    """``part``: `last`, `min` or `max` of a metric; empty of a parameter."""

    name: str
    part: str
    is_descending: bool

    def __str__(self) -> str:
        return f"{'metric' if self.part else 'parameter'} {self.name}"


def _ignore(job_ids: Collection[int]) -> None:
    """Do nothing."""


def value_order(order: str) -> ValueOrder | None:
    """The order by a parameter or a metric; None for any other."""
    found = _ORDER.fullmatch(order)
    if found is None:
        return None
    parameter, metric, part, direction = found.groups()
    return ValueOrder(metric or parameter, part or "", direction == "DESC")


def key_of_order(query: JobQuery) -> JobQuery:
    """The query of all pages."""
    return replace(query, offset=0, limit=MAX_JOBS + 1, with_total=False)


def read_order(
    conn: Connection,
    query: JobQuery,
    order: ValueOrder,
    *,
    on_running: OnRunning = _ignore,
    max_jobs: int = MAX_JOBS,
    timeout_s: float = _TIMEOUT_S,
) -> Order:
    """All jobs of a query, those without a value last. Of equal ones the newest is first.

    ``on_running`` is called with jobs whose metrics were read although they may have newer ones.
    """
    began_s = time.monotonic()

    def refused(problem: str) -> Order:
        return Order(array("q"), time.monotonic() - began_s, problem, _HINT)

    ids, _ = job_list.long_page(conn, replace(query, offset=0, limit=max_jobs + 1, with_total=False))
    if len(ids) > max_jobs:
        total = job_list.list_jobs(conn, replace(query, limit=0, with_total=True)).total
        return refused(f"At most {max_jobs} jobs can be sorted by a parameter or a metric, not {total}.")
    values: dict[int, Any] = {}
    for some in _blocks(job_columns.sizes_of(conn, ids)):
        if time.monotonic() > began_s + timeout_s:
            return refused(f"Reading {order} of {len(ids)} jobs takes longer than {timeout_s:.0f} s.")
        of_some = _metrics(conn, some, order, on_running) if order.part else _parameters(conn, some, order)
        values.update(of_some)
    having = sorted(
        (one for one in ids if one in values), key=values.__getitem__, reverse=order.is_descending
    )
    found = array("q", [*having, *(one for one in ids if one not in values)])
    return Order(found, time.monotonic() - began_s)


def page_of_order(conn: Connection, query: JobQuery, ids: Sequence[int]) -> tuple[Sequence[int], int | None]:
    """The ids of a page and, if requested, the number of matches."""
    page = ids[query.offset : query.offset + query.limit]
    # Some may have been deleted since.
    present = {job.id for job in job_columns.sizes_of(conn, page)}
    return [job_id for job_id in page if job_id in present], len(ids) if query.with_total else None


def _blocks(jobs: Sequence[JobSize]) -> Iterator[Sequence[JobSize]]:
    block: list[JobSize] = []
    tasks = 0
    for job in jobs:
        if block and (len(block) == _BLOCK or tasks + job.total_tasks > _BLOCK_TASKS):
            yield block
            block, tasks = [], 0
        block.append(job)
        tasks += job.total_tasks
    if block:
        yield block


def _metrics(
    conn: Connection, jobs: Sequence[JobSize], order: ValueOrder, on_running: OnRunning
) -> Mapping[int, float]:
    """Without NaN. An array has no last value: its lowest counts."""
    metrics, arrays = read_metrics(conn, jobs, (order.name,))
    on_running(metrics.running)
    at = _PARTS.index(order.part)
    lowest = _PARTS.index("min")
    found = {}
    for job_id, by_name in metrics.by_job.items():
        value = by_name[order.name][lowest if job_id in arrays and not at else at] if by_name else None
        if value is not None:
            found[job_id] = value
    return found


def _parameters(
    conn: Connection, jobs: Sequence[JobSize], order: ValueOrder
) -> Mapping[int, tuple[bool, float, str]]:
    """Numbers before texts. Of an array the first value counts."""
    found = {}
    for job_id, text in job_columns.specs_of(conn, [job.id for job in jobs]).items():
        values = parameter_values(run_config(text), (order.name,)).get(order.name)
        if values:
            found[job_id] = _place(values[0])
    return found


def _place(text: str) -> tuple[bool, float, str]:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    return (True, 0.0, text) if number != number else (False, number, "")
