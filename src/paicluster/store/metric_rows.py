"""Rows of metrics: the summary of each metric of each task attempt, and how far its file was read.

Both are written in one transaction, so that no line is counted twice or lost, however a server ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection

from paicluster.store.bulk_insert import chunks
from paicluster.store.compiled_statements import execute
from paicluster.store.history import add_event

# Names of a task attempt; further ones are in its file only.
MAX_NAMES = 1000
# Of a group, while the task runs: the program's own metrics, which come as they are logged, have room.
MAX_GROUP_NAMES = MAX_NAMES // 2
TOO_MANY_NAMES = "TooManyMetrics"


class MetricValues(NamedTuple):
    """Summary of one metric. ``last`` is None for NaN, ``min`` and ``max`` if there is no other value."""

    # How often it was logged.
    times: int
    last: float | None
    last_step: int
    min: float | None
    min_step: int | None
    max: float | None
    max_step: int | None


class MetricGroup(NamedTuple):
    """All metrics whose names begin with a prefix: they replace those of that prefix that are stored."""

    prefix: str
    metrics: Mapping[str, MetricValues]


@dataclass(frozen=True, slots=True)
class MetricPart:
    """What a file of metrics has between two offsets. ``is_last``: the task has ended, nothing follows."""

    job_id: int
    uid: str
    start: int
    end: int
    metrics: Mapping[str, MetricValues]
    is_last: bool = False
    names_omitted: bool = False
    # Of other files of the task, with the last part.
    group: MetricGroup | None = None


class MetricFile(NamedTuple):
    """File of metrics that was not read to its end. ``has_ended``: its task attempt has."""

    job_id: int
    uid: str
    read_bytes: int
    has_ended: bool


class TaskMetric(NamedTuple):
    """Metric of a task attempt; in the order of roles, tasks and attempts."""

    role_order: int
    task_index: int
    name: str
    values: MetricValues


_FILE = (
    "SELECT tasks.uid, metric_files.read_bytes, metric_files.complete, metric_files.names_omitted,"
    " (SELECT count(*) FROM task_metrics WHERE task_metrics.job_id = tasks.job_id"
    " AND task_metrics.uid = tasks.uid)"
    " FROM tasks LEFT JOIN metric_files ON metric_files.job_id = tasks.job_id"
    " AND metric_files.uid = tasks.uid WHERE tasks.uid = ?"
)
_SET_FILE = (
    "INSERT INTO metric_files (job_id, uid, read_bytes, complete, names_omitted) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (job_id, uid) DO UPDATE SET read_bytes = excluded.read_bytes,"
    " complete = excluded.complete, names_omitted = excluded.names_omitted"
)
_NAMES = "SELECT name FROM task_metrics WHERE job_id = ? AND uid = ?"
_REMOVE_GROUP = (
    "DELETE FROM task_metrics WHERE job_id = ? AND uid = ? AND substr(name, 1, CAST(? AS integer)) = ?"
)
_VALUES = ("count", "last_value", "last_step", "min_value", "min_step", "max_value", "max_step")
_COLUMNS = ("job_id", "uid", "name", *_VALUES)


def add_parts(conn: Connection, parts: Sequence[MetricPart], now_ms: int) -> dict[str, int]:
    """Add what was read; the offsets up to which each file is read now.

    A part that does not begin there is left out: it was read twice. So is one of a removed job.
    """
    offsets: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    grouped: list[tuple[Any, ...]] = []
    for part in parts:
        found = execute(conn, _FILE, (part.uid,)).fetchone()
        if found is None:
            continue
        _, read_bytes, was_complete, was_omitted, count = found
        if (read_bytes or 0) != part.start:
            offsets[part.uid] = read_bytes or 0
            continue
        group = None if was_complete else part.group
        if group is not None:
            count -= _remove_group(conn, part.job_id, part.uid, group.prefix)
        in_group = {} if group is None else group.metrics
        metrics, is_over = _within_bound(conn, part, {**part.metrics, **in_group}, count)
        for name, values in metrics.items():
            (grouped if name in in_group else rows).append((part.job_id, part.uid, name, *values))
        is_omitted = is_over or part.names_omitted
        if is_omitted and not was_omitted:
            _report(conn, part.job_id, now_ms)
        state = (part.job_id, part.uid, part.end, part.is_last, bool(is_omitted or was_omitted))
        execute(conn, _SET_FILE, state).close()
        offsets[part.uid] = part.end
    _write(conn, rows, _merge_text)
    _write(conn, grouped, _replace_text)
    return offsets


def replace_group(conn: Connection, job_id: int, uid: str, group: MetricGroup) -> None:
    """Store a group of a running task: not of one whose files were read to the end, or that was removed.

    However often, and whatever was stored before: nothing is counted twice.
    """
    found = execute(conn, _FILE, (uid,)).fetchone()
    if found is None or found[2]:
        return
    room = MAX_NAMES - found[4] + _remove_group(conn, job_id, uid, group.prefix)
    metrics = itertools.islice(group.metrics.items(), max(0, min(room, MAX_GROUP_NAMES)))
    _write(conn, [(job_id, uid, name, *values) for name, values in metrics], _replace_text)


def _remove_group(conn: Connection, job_id: int, uid: str, prefix: str) -> int:
    """Number of rows that were removed."""
    cursor = execute(conn, _REMOVE_GROUP, (job_id, uid, len(prefix), prefix))
    count = cursor.rowcount
    cursor.close()
    return count


def _write(conn: Connection, rows: Sequence[tuple[Any, ...]], text_of: Callable[[int], str]) -> None:
    for distinct in _without_repetitions(rows):
        for chunk in chunks(distinct):
            execute(conn, text_of(len(chunk)), [value for row in chunk for value in row]).close()


def _without_repetitions(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """All rows in order, in lists that have no metric twice: PostgreSQL merges a row once in a statement."""
    part: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        if row[:3] in part:
            yield list(part.values())
            part = {}
        part[row[:3]] = row
    yield list(part.values())


def _within_bound(
    conn: Connection, part: MetricPart, metrics: Mapping[str, MetricValues], count: int
) -> tuple[Mapping[str, MetricValues], bool]:
    if count + len(metrics) <= MAX_NAMES:
        return metrics, False
    known = {name for (name,) in execute(conn, _NAMES, (part.job_id, part.uid)).fetchall()}
    new = [name for name in metrics if name not in known]
    kept = known.union(new[: MAX_NAMES - len(known)])
    return {name: metrics[name] for name in metrics if name in kept}, len(new) > len(kept - known)


def _report(conn: Connection, job_id: int, now_ms: int) -> None:
    add_event(
        conn,
        job_id,
        type="Warning",
        reason=TOO_MANY_NAMES,
        message=f"A task logged more than {MAX_NAMES} metrics, or one with a name of more than 255"
        " characters: pai runs shows the others, pai job-metrics all.",
        now_ms=now_ms,
        source="paicluster",
    )


@lru_cache(maxsize=128)
def _merge_text(size: int) -> str:
    """Insert rows, or merge them into those that are there."""
    lower = "task_metrics.min_value IS NULL OR excluded.min_value < task_metrics.min_value"
    higher = "task_metrics.max_value IS NULL OR excluded.max_value > task_metrics.max_value"
    changes = [
        "count = task_metrics.count + excluded.count",
        "last_value = excluded.last_value",
        "last_step = excluded.last_step",
        *(
            f"{kind}_{what} = CASE WHEN {is_beyond} THEN excluded.{kind}_{what}"
            f" ELSE task_metrics.{kind}_{what} END"
            for kind, is_beyond in (("min", lower), ("max", higher))
            for what in ("value", "step")
        ),
    ]
    return _upsert_text(size, changes)


@lru_cache(maxsize=128)
def _replace_text(size: int) -> str:
    """Insert rows, or replace those that another server wrote meanwhile."""
    return _upsert_text(size, [f"{column} = excluded.{column}" for column in _VALUES])


def _upsert_text(size: int, changes: Sequence[str]) -> str:
    row = "(" + ", ".join("?" * len(_COLUMNS)) + ")"
    return (
        f"INSERT INTO task_metrics ({', '.join(_COLUMNS)}) VALUES " + ", ".join([row] * size) + ""
        " ON CONFLICT (job_id, uid, name) DO UPDATE SET " + ", ".join(changes)
    )


# -- reading ----------------------------------------------------------------------------------------


def read_offsets(conn: Connection, uids: Sequence[str]) -> dict[str, int]:
    """How far the files of these task attempts were read; without those of which nothing was."""
    offsets: dict[str, int] = {}
    for chunk in chunks(uids):
        text = (
            "SELECT metric_files.uid, metric_files.read_bytes FROM tasks JOIN metric_files"
            " ON metric_files.job_id = tasks.job_id AND metric_files.uid = tasks.uid"
            f" WHERE tasks.uid IN ({', '.join('?' * len(chunk))})"
        )
        offsets.update((uid, read_bytes) for uid, read_bytes in execute(conn, text, chunk).fetchall())
    return offsets


def unread_files(conn: Connection, job_ids: Sequence[int]) -> list[MetricFile]:
    """Files of all task attempts of these jobs that have started, but for those that were read to the end."""
    files: list[MetricFile] = []
    for chunk in chunks(job_ids):
        text = (
            "SELECT tasks.job_id, tasks.uid, coalesce(metric_files.read_bytes, 0),"
            " tasks.completed_ms IS NOT NULL FROM tasks LEFT JOIN metric_files"
            " ON metric_files.job_id = tasks.job_id AND metric_files.uid = tasks.uid"
            f" WHERE tasks.job_id IN ({', '.join('?' * len(chunk))}) AND tasks.launched_ms IS NOT NULL"
            " AND (metric_files.complete IS NULL OR NOT metric_files.complete)"
        )
        files += [
            MetricFile(job_id, uid, read_bytes, bool(has_ended))
            for job_id, uid, read_bytes, has_ended in execute(conn, text, chunk).fetchall()
        ]
    return files


def metrics_of(conn: Connection, job_id: int, names: Collection[str] = ()) -> list[TaskMetric]:
    """Metrics of all task attempts of a job, or those with these names: by role, task and attempt."""
    text = (
        f"SELECT tasks.role_order, tasks.task_index, task_metrics.name, {', '.join(_VALUES)}"
        " FROM task_metrics JOIN tasks ON tasks.uid = task_metrics.uid WHERE task_metrics.job_id = ?"
    )
    if names:
        text += f" AND task_metrics.name IN ({', '.join('?' * len(names))})"
    text += (
        " ORDER BY tasks.role_order, tasks.task_index, tasks.attempt, tasks.task_attempt, task_metrics.name"
    )
    return [
        TaskMetric(order, index, name, MetricValues(*values))
        for order, index, name, *values in execute(conn, text, (job_id, *names)).fetchall()
    ]


def count_of(conn: Connection, job_id: int) -> int:
    """Number of metrics of all task attempts of a job."""
    row = execute(conn, "SELECT count(*) FROM task_metrics WHERE job_id = ?", (job_id,)).fetchone()
    return int(row[0]) if row else 0


def names_of(conn: Connection, job_id: int) -> list[str]:
    """Names of all metrics of a job, sorted."""
    text = "SELECT DISTINCT name FROM task_metrics WHERE job_id = ? ORDER BY name"
    return [name for (name,) in execute(conn, text, (job_id,)).fetchall()]


def has_omitted_names(conn: Connection, job_id: int) -> bool:
    """Whether a task of the job logged names beyond the bound."""
    text = "SELECT 1 FROM metric_files WHERE job_id = ? AND names_omitted LIMIT 1"
    return execute(conn, text, (job_id,)).fetchone() is not None


def merged(first: MetricValues, later: MetricValues) -> MetricValues:
    """Metric of a task: of an attempt and of a later one."""
    lowest = first if later.min is None or (first.min is not None and first.min <= later.min) else later
    highest = first if later.max is None or (first.max is not None and first.max >= later.max) else later
    return MetricValues(
        first.times + later.times,
        later.last,
        later.last_step,
        lowest.min,
        lowest.min_step,
        highest.max,
        highest.max_step,
    )
