"""Values of the jobs of a list beyond their summaries: metrics of their tasks, and their specs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from paicluster.store.bulk_insert import chunks
from paicluster.store.compiled_statements import execute

# Values of one statement; most pages need one.
_MAX_VALUES = 256
_MISSED = 2
# More than tasks of a role, and than attempts of a task.
_PLACES = 1 << 31
_FIRST_TASK = " AND tasks.task_index = 0 AND tasks.role_order = 0"


class JobSize(NamedTuple):
    """Numbers of tasks and task roles of a job."""

    id: int
    total_tasks: int
    total_roles: int


class JobMetric(NamedTuple):
    """Metric of a job: of its first task that logged it, or of all tasks of an array.

    ``last`` is None for NaN, ``min`` and ``max`` if there is no other value.
    """

    last: float | None
    min: float | None
    max: float | None
    name: str | None
    job_id: int
    # 0: its file was read to the end, 1: it was not, 2: nor is it, although the task has ended.
    unread: int
    # Places of the task among all, and of its attempt.
    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Metrics of jobs by id and name, each the fields of a `JobMetric`.

    ``unread``: jobs of which some may be in files that were not read to their end; ``missed``: those of them
    with tasks that have ended, ``running``: with tasks that have not.
    """

    by_job: dict[int, dict[str, tuple[Any, ...]]]
    unread: set[int]
    missed: set[int]
    running: set[int]


def sizes_of(conn: Connection, job_ids: Sequence[int]) -> list[JobSize]:
    """Sizes of these jobs, without those that were deleted since."""
    text = "SELECT id, total_tasks, total_roles FROM jobs WHERE id IN "
    return [JobSize(*row) for row in _in_blocks(conn, text, job_ids)]


def specs_of(conn: Connection, job_ids: Sequence[int]) -> dict[int, str]:
    """The job of each id, as JSON."""
    # Most jobs are parsed as they were submitted: their text is stored once.
    text = "SELECT job_id, CASE WHEN job = '' THEN config ELSE job END FROM job_specs WHERE job_id IN "
    return dict(_in_blocks(conn, text, job_ids))


def metrics_of(
    conn: Connection, jobs: Sequence[JobSize], arrays: Collection[int], names: Sequence[str]
) -> JobMetrics:
    """Metrics with these names of the jobs, of which those are arrays.

    Of a task attempt only these are looked up. Of most jobs of several tasks the first one has logged them.
    """
    found = JobMetrics({job.id: {} for job in jobs}, set(), set(), set())
    firsts = [job.id for job in jobs if job.id not in arrays]
    _add_metrics(found, _metric_rows(conn, firsts, names, _FIRST_TASK))
    others = [
        job.id
        for job in jobs
        if job.total_tasks > 1 and job.id not in arrays and len(found.by_job[job.id]) < len(names)
    ]
    for job_id in others:
        found.by_job[job_id].clear()
    _add_metrics(found, _metric_rows(conn, others, names))
    _add_metrics(found, _metric_rows(conn, sorted(arrays), names), of_all=True)
    return found


def _add_metrics(found: JobMetrics, rows: Iterable[Any], *, of_all: bool = False) -> None:
    """Metrics of the first task that logged them, with its attempts; ``of_all``: of all tasks."""
    by_job = found.by_job
    for row in rows:
        _, _, _, name, job_id, unread, _, _ = row
        if unread:
            found.unread.add(job_id)
            (found.missed if unread == _MISSED else found.running).add(job_id)
        if name is None:
            continue
        metrics = by_job[job_id]
        # The rows stay tuples, as most of them are the only ones: this is the cost of a page.
        metrics[name] = _merged(metrics[name], row, of_all) if name in metrics else row


def _merged(one: Any, other: Any, of_all: bool) -> tuple[Any, ...]:
    """Of two tasks that of the first one, of two attempts of a task both."""
    first, later = JobMetric(*one), JobMetric(*other)
    if (later.task, later.attempt) < (first.task, first.attempt):
        first, later = later, first
    if first.task != later.task and not of_all:
        return first
    return later._replace(min=_least(first.min, later.min), max=_greatest(first.max, later.max))


def _metric_rows(
    conn: Connection, job_ids: Sequence[int], names: Sequence[str], condition: str = ""
) -> Iterator[Any]:
    """The fields of a `JobMetric` for each metric of a task attempt, and one without name if it has none."""
    wanted = _padded(names)
    for some in _blocks(job_ids):
        yield from execute(
            conn,
            "SELECT task_metrics.last_value, task_metrics.min_value, task_metrics.max_value,"
            " task_metrics.name, tasks.job_id,"
            " CASE WHEN metric_files.complete OR tasks.launched_ms IS NULL THEN 0"
            f" WHEN tasks.completed_ms IS NULL THEN 1 ELSE {_MISSED} END,"
            f" tasks.role_order * {_PLACES} + tasks.task_index,"
            f" tasks.attempt * {_PLACES} + tasks.task_attempt"
            " FROM tasks LEFT JOIN metric_files ON metric_files.job_id = tasks.job_id"
            " AND metric_files.uid = tasks.uid LEFT JOIN task_metrics"
            " ON task_metrics.job_id = tasks.job_id AND task_metrics.uid = tasks.uid"
            f" AND task_metrics.name IN {_marks(wanted)} WHERE tasks.job_id IN {_marks(some)}{condition}",
            (*wanted, *some),
        ).fetchall()


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def metric_names(conn: Connection, job_ids: Sequence[int], most: int) -> list[str]:
    """Names of what the first task of each role of the jobs has logged, at most that many."""
    names: dict[str, None] = {}
    for some in chunks(job_ids):
        text = (
            "SELECT DISTINCT task_metrics.name FROM tasks CROSS JOIN task_metrics"
            f" WHERE tasks.job_id IN {_marks(some)} AND tasks.task_index = 0"
            " AND task_metrics.job_id = tasks.job_id AND task_metrics.uid = tasks.uid"
        )
        names.update((name, None) for (name,) in execute(conn, text, tuple(some)).fetchall())
        if len(names) >= most:
            break
    return sorted(names)[:most]


def _in_blocks(conn: Connection, text: str, values: Sequence[Any]) -> Iterator[Any]:
    for some in _blocks(values):
        yield from execute(conn, text + _marks(some), tuple(some)).fetchall()


def _blocks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _MAX_VALUES):
        yield _padded(values[start : start + _MAX_VALUES])


def _padded(values: Sequence[Any]) -> Sequence[Any]:
    """For `IN`: a list of a power of two, which repeats the last value. Few lengths make few statements."""
    if not values:
        return values
    return [*values, *([values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values)))]


def _marks(values: Collection[object]) -> str:
    return f"({', '.join('?' * len(values))})"
