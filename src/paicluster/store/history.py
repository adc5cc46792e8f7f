"""What happened to a job: its attempts, its tasks, its events."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from paicluster.store.bulk import insert_rows, placeholder
from paicluster.store.rows import AttemptRow, EventRow, TaskRow
from paicluster.store.tables import attempts, events, tasks
from paicluster.store.writer import touch, touch_all

_TASK_COLUMNS = tuple(field.name for field in fields(TaskRow))
_ATTEMPT_COLUMNS = tuple(field.name for field in fields(AttemptRow))


# -- tasks ----------------------------------------------------------------------------------------


def insert_tasks(conn: Connection, rows: Sequence[TaskRow]) -> None:
    """Write task attempts, all of a gang in one go."""
    insert_rows(
        conn, tasks, _TASK_COLUMNS, [tuple(getattr(row, name) for name in _TASK_COLUMNS) for row in rows]
    )
    touch_all(conn, (row.job_id for row in rows))


def update_tasks(conn: Connection, changes: Sequence[Mapping[str, Any]]) -> None:
    """Change task attempts. Each mapping names its row by ``uid`` and the columns to set.

    ``job_id`` must be there too: it says whose followers to wake.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for change in changes:
        columns = tuple(sorted(name for name in change if name not in ("uid", "job_id")))
        groups.setdefault(columns, []).append(change)
    for columns, group in groups.items():
        if not columns:
            continue
        statement = (
            update(tasks)
            .where(tasks.c.uid == bindparam("of_uid"))
            .values({name: bindparam(f"to_{name}") for name in columns})
        )
        conn.execute(
            statement,
            [
                {"of_uid": change["uid"], **{f"to_{name}": change[name] for name in columns}}
                for change in group
            ],
        )
    touch_all(conn, (change["job_id"] for change in changes))


def tasks_of(conn: Connection, job_id: int, attempt: int) -> list[TaskRow]:
    """The tasks of one attempt of a job: by role as declared, by index, the latest attempt of each task."""
    latest: dict[tuple[int, int], TaskRow] = {}
    for row in all_tasks_of(conn, job_id, attempt):
        latest[row.role_order, row.task_index] = row
    return list(latest.values())


def all_tasks_of(conn: Connection, job_id: int, attempt: int) -> list[TaskRow]:
    """As :func:`tasks_of`, with every attempt of each task, oldest first."""
    query = (
        select(tasks)
        .where(tasks.c.job_id == job_id, tasks.c.attempt == attempt)
        .order_by(tasks.c.role_order, tasks.c.task_index, tasks.c.task_attempt)
    )
    return task_rows(conn.execute(query))


def task_attempts_of(conn: Connection, job_id: int, attempt: int, role: str, index: int) -> list[TaskRow]:
    """Every attempt of one task, newest first."""
    query = (
        select(tasks)
        .where(
            tasks.c.job_id == job_id,
            tasks.c.attempt == attempt,
            tasks.c.role == role,
            tasks.c.task_index == index,
        )
        .order_by(tasks.c.task_attempt.desc())
    )
    return task_rows(conn.execute(query))


def get_task(conn: Connection, uid: str) -> TaskRow | None:
    """One task attempt by its uid."""
    rows = task_rows(conn.execute(select(tasks).where(tasks.c.uid == uid)))
    return rows[0] if rows else None


def task_rows(rows: Iterable[Row[Any]]) -> list[TaskRow]:
    return [TaskRow(*tuple(row)) for row in rows]


# -- attempts -------------------------------------------------------------------------------------


def upsert_attempt(conn: Connection, row: AttemptRow) -> None:
    """Write one attempt of a job, over what was known of it before."""
    mark = placeholder(conn)
    names = ", ".join(_ATTEMPT_COLUMNS)
    marks = ", ".join([mark] * len(_ATTEMPT_COLUMNS))
    changed = ", ".join(f"{name} = excluded.{name}" for name in _ATTEMPT_COLUMNS[2:])
    conn.exec_driver_sql(
        f"INSERT INTO {attempts.name} ({names}) VALUES ({marks})"
        f" ON CONFLICT (job_id, attempt) DO UPDATE SET {changed}",
        tuple(asdict(row).values()),
    )
    touch(conn, row.job_id)


def attempts_of(conn: Connection, job_id: int) -> list[AttemptRow]:
    """Every attempt of a job, oldest first."""
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt)
    return [AttemptRow(*row) for row in conn.execute(query)]


# -- events ---------------------------------------------------------------------------------------


def add_event(
    conn: Connection,
    job_id: int,
    *,
    type: str,
    reason: str,
    message: str,
    now_ms: int,
    source: str,
    task_role: str | None = None,
    task_index: int | None = None,
) -> None:
    """Tell something about a job. The same again only counts, so that repeating it costs no room."""
    mark = placeholder(conn)
    conn.exec_driver_sql(
        f"INSERT INTO {events.name} (job_id, uid, type, reason, message, task_role, task_index,"
        f" first_ms, last_ms, count, source) VALUES ({', '.join([mark] * 9)}, 1, {mark})"
        " ON CONFLICT (job_id, type, reason, message)"
        f" DO UPDATE SET last_ms = excluded.last_ms, count = {events.name}.count + 1",
        (job_id, str(uuid.uuid4()), type, reason, message, task_role, task_index, now_ms, now_ms, source),
    )
    touch(conn, job_id)


def events_of(conn: Connection, job_id: int, type: str | None = None) -> list[EventRow]:
    """What the cluster had to say about a job, latest first."""
    query = select(events).where(events.c.job_id == job_id)
    if type is not None:
        query = query.where(events.c.type == type)
    query = query.order_by(events.c.last_ms.desc(), events.c.id.desc())
    return [EventRow(*_in_order(EventRow, row)) for row in conn.execute(query)]


def _in_order(kind: type[EventRow], row: Row[Any]) -> list[Any]:
    return [getattr(row, field.name) for field in fields(kind)]
