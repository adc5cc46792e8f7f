"""History of a job: its attempts, tasks and events."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, cast

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select, update

from paicluster.store.bulk_insert import insert_rows
from paicluster.store.compiled_statements import Prepared, execute
from paicluster.store.rows import AttemptRow, EventRow, TaskRow, TaskUsage
from paicluster.store.tables import attempts, events, tasks
from paicluster.store.writer import touch, touch_all

_TASK_COLUMNS = tuple(field.name for field in fields(TaskRow))
_ATTEMPT_COLUMNS = tuple(field.name for field in fields(AttemptRow))
_EVENT_COLUMNS = tuple(field.name for field in fields(EventRow))

TASKS = select(*(tasks.c[name] for name in _TASK_COLUMNS))


# -- tasks ----------------------------------------------------------------------------------------


def insert_tasks(conn: Connection, rows: Sequence[TaskRow]) -> None:
    """Insert task attempts, all of a gang in one call."""
    insert_rows(conn, "tasks", _TASK_COLUMNS, [_values(row, _TASK_COLUMNS) for row in rows])
    touch_all(conn, (row.job_id for row in rows))


def update_tasks(conn: Connection, changes: Sequence[Mapping[str, Any]]) -> None:
    """Update task attempts. Each mapping has the ``uid`` of its row and the columns to set.

    It must also have ``job_id``, whose followers are notified.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for change in changes:
        columns = tuple(sorted(name for name in change if name not in ("uid", "job_id")))
        if columns:
            values = {f"to_{name}": change[name] for name in columns}
            groups.setdefault(columns, []).append({"of_uid": change["uid"], **values})
    for columns, rows in groups.items():
        _task_update(columns).run_many(conn, rows)
    touch_all(conn, (change["job_id"] for change in changes))


def forget_tasks(conn: Connection, job_id: int, attempt: int) -> list[str]:
    """Delete all tasks of an attempt, none of which was launched; their uids."""
    deleted = delete(tasks).where(tasks.c.job_id == job_id, tasks.c.attempt == attempt).returning(tasks.c.uid)
    uids = [uid for (uid,) in conn.execute(deleted)]
    touch(conn, job_id)
    return uids


@lru_cache(maxsize=64)
def _task_update(columns: tuple[str, ...]) -> Prepared:
    return Prepared(
        update(tasks)
        .where(tasks.c.uid == bindparam("of_uid"))
        .values({name: bindparam(f"to_{name}") for name in columns})
    )


def tasks_of(conn: Connection, job_id: int, attempt: int) -> list[TaskRow]:
    """The tasks of one attempt of a job: by role as declared, by index, the latest attempt of each task."""
    latest: dict[tuple[int, int], TaskRow] = {}
    for row in all_tasks_of(conn, job_id, attempt):
        latest[row.role_order, row.task_index] = row
    return list(latest.values())


def all_tasks_of(conn: Connection, job_id: int, attempt: int) -> list[TaskRow]:
    """As :func:`tasks_of`, with every attempt of each task, oldest first."""
    return task_rows(_OF_ATTEMPT.run(conn, job=job_id, attempt=attempt).fetchall())


def task_details_of(conn: Connection, job_id: int, attempt: int) -> list[tuple[Any, ...]]:
    """As :func:`tasks_of`, but plain tuples of :data:`TASK_DETAIL_COLUMNS`: a job may have thousands."""
    latest: dict[tuple[int, int], tuple[Any, ...]] = {}
    for row in _DETAILS_OF_ATTEMPT.run(conn, job=job_id, attempt=attempt).fetchall():
        latest[row[0], row[1]] = cast("tuple[Any, ...]", row)
    return list(latest.values())


def task_attempts_of(conn: Connection, job_id: int, attempt: int, role: str, index: int) -> list[TaskRow]:
    """Every attempt of one task, newest first."""
    return task_rows(_OF_TASK.run(conn, job=job_id, attempt=attempt, role=role, index=index).fetchall())


def get_task(conn: Connection, uid: str) -> TaskRow | None:
    """One task attempt by its uid."""
    rows = task_rows(_BY_UID.run(conn, uid=uid).fetchall())
    return rows[0] if rows else None


def task_rows(rows: Iterable[Sequence[Any]]) -> list[TaskRow]:
    return [TaskRow(*(*row[:-2], bool(row[-2]), bool(row[-1]))) for row in rows]


def task_usage(conn: Connection) -> list[TaskUsage]:
    """Resources of each task that is placed on a node and has not ended."""
    return [
        TaskUsage(vc, node, cpu, memory_mb, len(msgspec.json.decode(gpus or "[]")), priority == "oppo")
        for vc, node, cpu, memory_mb, gpus, priority in execute(conn, _TASK_USAGE).fetchall()
    ]


_of_attempt = TASKS.where(tasks.c.job_id == bindparam("job"), tasks.c.attempt == bindparam("attempt"))
_OF_ATTEMPT = Prepared(_of_attempt.order_by(tasks.c.role_order, tasks.c.task_index, tasks.c.task_attempt))
TASK_DETAIL_COLUMNS = (
    "role_order", "task_index", "role", "uid", "attempt", "task_attempt", "task_uid", "sub_state", "node",
    "ip", "ports", "created_ms", "launched_ms", "completed_ms", "exit_code", "exit_info", "retries_total",
    "retries_accountable",
)  # fmt: skip
_DETAILS_OF_ATTEMPT = Prepared(
    select(*(tasks.c[name] for name in TASK_DETAIL_COLUMNS))
    .where(tasks.c.job_id == bindparam("job"), tasks.c.attempt == bindparam("attempt"))
    .order_by(tasks.c.role_order, tasks.c.task_index, tasks.c.task_attempt)
)
_OF_TASK = Prepared(
    _of_attempt.where(tasks.c.role == bindparam("role"), tasks.c.task_index == bindparam("index")).order_by(
        tasks.c.task_attempt.desc()
    )
)
_TASK_USAGE = (
    "SELECT jobs.vc, tasks.node, tasks.cpu, tasks.memory_mb, tasks.gpus, jobs.priority FROM jobs JOIN tasks"
    " ON tasks.job_id = jobs.id AND tasks.attempt = jobs.attempt"
    " WHERE jobs.sub_state != 'Completed' AND tasks.node IS NOT NULL AND tasks.completed_ms IS NULL"
)
_BY_UID = Prepared(TASKS.where(tasks.c.uid == bindparam("uid")))


# -- attempts -------------------------------------------------------------------------------------

_UPSERT_ATTEMPT = (
    f"INSERT INTO attempts ({', '.join(_ATTEMPT_COLUMNS)}) VALUES ({', '.join('?' * len(_ATTEMPT_COLUMNS))})"
    " ON CONFLICT (job_id, attempt) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _ATTEMPT_COLUMNS[2:])
)
_ATTEMPTS_OF = Prepared(
    select(*(attempts.c[name] for name in _ATTEMPT_COLUMNS))
    .where(attempts.c.job_id == bindparam("job"))
    .order_by(attempts.c.attempt)
)


def upsert_attempt(conn: Connection, row: AttemptRow) -> None:
    """Insert or replace one attempt of a job."""
    execute(conn, _UPSERT_ATTEMPT, _values(row, _ATTEMPT_COLUMNS)).close()
    touch(conn, row.job_id)


def attempts_of(conn: Connection, job_id: int) -> list[AttemptRow]:
    """Every attempt of a job, oldest first."""
    return [AttemptRow(*row) for row in _ATTEMPTS_OF.run(conn, job=job_id).fetchall()]


# -- events ---------------------------------------------------------------------------------------

_MAX_MESSAGE_BYTES = 2000

# By id, events are in the order in which they were last reported: the clock may have been set back meanwhile.
# There is only one writer, so the ids can be assigned here, independent of the database.
_ADD_EVENT = (
    "INSERT INTO events (id, job_id, uid, type, reason, message, task_role, task_index, first_ms, last_ms,"
    " count, source, pending)"
    " VALUES ((SELECT coalesce(max(id), 0) + 1 FROM events), ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)"
    " ON CONFLICT (job_id, type, reason, message)"
    " DO UPDATE SET id = excluded.id, last_ms = excluded.last_ms, count = events.count + 1"
)
_events_of = (
    select(*(events.c[name] for name in _EVENT_COLUMNS))
    .where(events.c.job_id == bindparam("job"))
    .order_by(events.c.id.desc())
)
_EVENTS_OF = Prepared(_events_of)
_EVENTS_OF_TYPE = Prepared(_events_of.where(events.c.type == bindparam("type")))


def add_event(
    conn: Connection,
    job_id: int,
    *,
    type: str,
    reason: str,
    message: str,
    now_ms: int,
    source: str,
    pending: bool = False,
    task_role: str | None = None,
    task_index: int | None = None,
) -> None:
    """Add an event; ``pending``: it tells why the job is pending.

    A repetition only increments its count, so that it takes no space.
    """
    uid = str(uuid.uuid4())
    values = (
        job_id,
        uid,
        type,
        reason,
        _bounded(message),
        task_role,
        task_index,
        now_ms,
        now_ms,
        source,
        pending,
    )
    execute(conn, _ADD_EVENT, values).close()
    touch(conn, job_id)


def _bounded(message: str) -> str:
    """The message, cut to what fits into the index of messages on each database."""
    if len(message) * 4 <= _MAX_MESSAGE_BYTES or len(data := message.encode()) <= _MAX_MESSAGE_BYTES:
        return message
    return data[:_MAX_MESSAGE_BYTES].decode(errors="ignore") + "…"


def events_of(conn: Connection, job_id: int, type: str | None = None) -> list[EventRow]:
    """Events of a job, latest first."""
    if type is None:
        cursor = _EVENTS_OF.run(conn, job=job_id)
    else:
        cursor = _EVENTS_OF_TYPE.run(conn, job=job_id, type=type)
    return [_event_row(row) for row in cursor.fetchall()]


def _event_row(row: Sequence[Any]) -> EventRow:
    # SQLite has no booleans.
    return EventRow(**{**dict(zip(_EVENT_COLUMNS, row, strict=True)), "pending": bool(row[-1])})


def page_of_events(
    conn: Connection, job_id: int, type: str | None, offset: int, limit: int
) -> tuple[int, list[EventRow]]:
    """A page of :func:`events_of`, and the total number."""
    of_job = [events.c.job_id == job_id, *([events.c.type == type] if type is not None else [])]
    total = conn.execute(select(func.count()).select_from(events).where(*of_job)).scalar() or 0
    query = select(*(events.c[name] for name in _EVENT_COLUMNS)).where(*of_job).order_by(events.c.id.desc())
    return total, [_event_row(row) for row in conn.execute(query.limit(limit).offset(offset))]


def _values(row: TaskRow | AttemptRow, columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in columns)
