"""Values of the jobs of a list beyond their summaries: metrics of their tasks, and their specs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from paicluster.store.bulk_insert import chunks
from paicluster.store.compiled_statements import execute


class JobSize(NamedTuple):
    """Numbers of tasks and task roles of a job."""

    id: int
    framework: str
    total_tasks: int
    total_roles: int


class JobMetric(NamedTuple):
    """Metric of a job: of its first task that logged it, or of all tasks of an array.

    ``last`` is None for NaN, ``min`` and ``max`` if there is no other value.
    """

    job_id: int
    name: str
    last: float | None
    min: float | None
    max: float | None


def listed_jobs(conn: Connection, frameworks: Sequence[str]) -> dict[str, JobSize]:
    """These jobs by their full names; those that were deleted since are missing."""
    text = "SELECT id, framework, total_tasks, total_roles FROM jobs WHERE framework IN "
    rows = _in_chunks(conn, text, frameworks)
    return {job.framework: job for job in map(JobSize._make, rows)}


def specs_of(conn: Connection, job_ids: Sequence[int]) -> dict[int, str]:
    """The job of each id, as JSON."""
    # Most jobs are parsed as they were submitted: their text is stored once.
    text = "SELECT job_id, CASE WHEN job = '' THEN config ELSE job END FROM job_specs WHERE job_id IN "
    return dict(_in_chunks(conn, text, job_ids))


def metrics_of(
    conn: Connection, jobs: Sequence[JobSize], arrays: Collection[int], names: Sequence[str]
) -> list[JobMetric]:
    """Metrics with these names of the jobs, of which those are arrays.

    Of a task attempt only these are looked up. Of most jobs of several tasks the first one has logged them.
    """
    firsts = [job.id for job in jobs if job.id not in arrays]
    found = _merged(_metric_rows(conn, firsts, names, " AND tasks.role_order = 0 AND tasks.task_index = 0"))
    others = [
        job.id
        for job in jobs
        if job.total_tasks > 1 and job.id not in arrays and any((job.id, name) not in found for name in names)
    ]
    found = _merged(_metric_rows(conn, others, names)) | found
    found |= _merged(_metric_rows(conn, sorted(arrays), names), of_all=True)
    return [JobMetric(*key, *values[2:]) for key, values in found.items()]


def _metric_rows(
    conn: Connection, job_ids: Sequence[int], names: Sequence[str], condition: str = ""
) -> Iterator[Any]:
    """Rows by job, role, task and attempt."""
    for some in chunks(job_ids):
        yield from execute(
            conn,
            "SELECT tasks.job_id, task_metrics.name, tasks.role_order, tasks.task_index,"
            " task_metrics.last_value, task_metrics.min_value, task_metrics.max_value"
            f" FROM tasks CROSS JOIN task_metrics WHERE tasks.job_id IN {_marks(some)}{condition}"
            " AND task_metrics.job_id = tasks.job_id AND task_metrics.uid = tasks.uid"
            f" AND task_metrics.name IN {_marks(names)}"
            " ORDER BY tasks.job_id, tasks.role_order, tasks.task_index, tasks.attempt, tasks.task_attempt",
            (*some, *names),
        ).fetchall()


def _merged(rows: Iterable[Any], *, of_all: bool = False) -> dict[tuple[int, str], list[Any]]:
    """Role, task, last, lowest and highest value, by job and name: of the first task, with its attempts."""
    found: dict[tuple[int, str], list[Any]] = {}
    for job_id, name, role, index, last, low, high in rows:
        key = (job_id, name)
        known = found.get(key)
        if known is None:
            found[key] = [role, index, last, low, high]
            continue
        if known[1] == index and known[0] == role:
            known[2] = last
        elif not of_all:
            continue
        if low is not None and (known[3] is None or low < known[3]):
            known[3] = low
        if high is not None and (known[4] is None or high > known[4]):
            known[4] = high
    return found


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


def _in_chunks(conn: Connection, text: str, values: Sequence[Any]) -> Iterator[Any]:
    for some in chunks(values):
        yield from execute(conn, text + _marks(some), tuple(some)).fetchall()


def _marks(values: Collection[object]) -> str:
    return f"({', '.join('?' * len(values))})"
