"""Jobs in the database: plain functions over a connection, run by :class:`paicluster.store.Store`.

Everything that changes a job also notes it for the change feed.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from openpaisdk.errors import NotFound
from openpaisdk.protocol.states import job_state
from paicluster.store.bulk import insert_rows
from paicluster.store.history import (
    add_event,
    all_tasks_of,
    attempts_of,
    events_of,
    get_task,
    insert_tasks,
    task_attempts_of,
    task_rows,
    tasks_of,
    update_tasks,
    upsert_attempt,
)
from paicluster.store.listing import JobQuery, ListPage, list_jobs
from paicluster.store.rows import ActiveJob, AttemptRow, EventRow, JobRow, JobSpecRow, TaskRow
from paicluster.store.submissions import INSERT_JOB, Inserted, InsertResult, NewJob, insert_jobs
from paicluster.store.summary import render_summary
from paicluster.store.tables import job_specs, job_tags, jobs, tasks
from paicluster.store.writer import request_all, touch

__all__ = [
    "INSERT_JOB",
    "ActiveJob",
    "AttemptRow",
    "EventRow",
    "InsertResult",
    "Inserted",
    "JobQuery",
    "JobRow",
    "JobSpecRow",
    "ListPage",
    "NewJob",
    "TaskRow",
    "active_jobs",
    "add_event",
    "add_tag",
    "all_tasks_of",
    "attempts_of",
    "events_of",
    "get_job",
    "get_job_by_id",
    "get_task",
    "insert_jobs",
    "insert_tasks",
    "job_spec",
    "list_jobs",
    "remove_tag",
    "set_execution_type",
    "tags_of",
    "task_attempts_of",
    "tasks_of",
    "update_job",
    "update_tasks",
    "upsert_attempt",
]

_COLUMNS = tuple(field.name for field in fields(JobRow))
_SELECT = select(*(jobs.c[name] for name in _COLUMNS))


def get_job(conn: Connection, framework: str) -> JobRow | None:
    """A job by its full name, ``user~name``."""
    return _one(conn.execute(_SELECT.where(jobs.c.framework == framework)).fetchone())


def get_job_by_id(conn: Connection, job_id: int) -> JobRow | None:
    return _one(conn.execute(_SELECT.where(jobs.c.id == job_id)).fetchone())


def job_spec(conn: Connection, job_id: int) -> JobSpecRow | None:
    """What was submitted."""
    row = conn.execute(select(job_specs).where(job_specs.c.job_id == job_id)).fetchone()
    return None if row is None else JobSpecRow(*row)


def active_jobs(conn: Connection) -> list[ActiveJob]:
    """Every job that is not over, oldest first, with all task attempts of its current attempt."""
    found = [
        JobRow(*row)
        for row in conn.execute(_SELECT.where(jobs.c.sub_state != "Completed").order_by(jobs.c.id))
    ]
    query = (
        select(tasks)
        .join(jobs, (jobs.c.id == tasks.c.job_id) & (jobs.c.attempt == tasks.c.attempt))
        .where(jobs.c.sub_state != "Completed")
        .order_by(tasks.c.job_id, tasks.c.role_order, tasks.c.task_index, tasks.c.task_attempt)
    )
    by_job: dict[int, list[TaskRow]] = {}
    for row in task_rows(conn.execute(query)):
        by_job.setdefault(row.job_id, []).append(row)
    return [ActiveJob(job, tuple(by_job.get(job.id, ()))) for job in found]


def update_job(conn: Connection, job_id: int, **columns: Any) -> JobRow:
    """Set columns of a job and render its list entry anew; the job as it is afterwards.

    ``state`` follows from ``sub_state`` and ``exit_code`` and is not set by hand.
    """
    row = conn.execute(_SELECT.where(jobs.c.id == job_id)).fetchone()
    if row is None:
        raise NotFound(f"There is no job with the id {job_id}.")
    now: dict[str, Any] = dict(row._mapping)
    now.update(columns)
    now["state"] = job_state(now["sub_state"], now["exit_code"])
    after = JobRow(**now)
    conn.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(**columns, state=after.state, summary=_summary(after, tags_of(conn, job_id)))
    )
    touch(conn, job_id)
    return after


def set_execution_type(conn: Connection, job_id: int, value: str) -> JobRow:
    """Note what the user wants of the job: START or STOP."""
    request_all(conn, (job_id,))
    return update_job(conn, job_id, execution_type=value)


def tags_of(conn: Connection, job_id: int) -> list[str]:
    return list(
        conn.execute(
            select(job_tags.c.tag).where(job_tags.c.job_id == job_id).order_by(job_tags.c.tag)
        ).scalars()
    )


def add_tag(conn: Connection, job_id: int, tag: str) -> None:
    """Give a job a tag; giving it again changes nothing."""
    if tag not in tags_of(conn, job_id):
        insert_rows(conn, job_tags, ("job_id", "tag"), [(job_id, tag)])
        update_job(conn, job_id)


def remove_tag(conn: Connection, job_id: int, tag: str) -> bool:
    """Take a tag from a job; False when it had none such."""
    removed = conn.execute(
        delete(job_tags).where(job_tags.c.job_id == job_id, job_tags.c.tag == tag)
    ).rowcount
    if removed:
        update_job(conn, job_id)
    return bool(removed)


def _one(row: Row[Any] | None) -> JobRow | None:
    return None if row is None else JobRow(*tuple(row))


def _summary(job: JobRow, tags: list[str]) -> str:
    return render_summary(
        debug_id=job.debug_id,
        name=job.name,
        username=job.username,
        state=job.state,
        sub_state=job.sub_state,
        execution_type=job.execution_type,
        tags=tags,
        retries=job.retries,
        retries_user=job.retries_user,
        retries_platform=job.retries_platform,
        retry_delay_s=job.retry_delay_s,
        submission_ms=job.submission_ms,
        created_ms=job.created_ms,
        launched_ms=job.launched_ms,
        completed_ms=job.completed_ms,
        exit_code=job.exit_code,
        vc=job.vc,
        total_gpus=job.total_gpus,
        total_tasks=job.total_tasks,
        total_roles=job.total_roles,
        priority=job.priority,
    )
