"""Jobs in the database: plain functions over a connection, run by :class:`paicluster.store.Store`.

Every function that changes a job also records it for the change feed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, literal_column, select, update

from paicluster.store.bulk_insert import chunks, insert_rows
from paicluster.store.compiled_statements import Prepared, execute
from paicluster.store.dialect_sql import dialect_of
from paicluster.store.history import (
    TASKS,
    add_event,
    all_tasks_of,
    attempts_of,
    events_of,
    forget_tasks,
    get_task,
    insert_tasks,
    page_of_events,
    task_attempts_of,
    task_details_of,
    task_rows,
    task_usage,
    tasks_of,
    update_tasks,
    upsert_attempt,
)
from paicluster.store.job_inserts import INSERT_JOB, Inserted, InsertResult, NewJob, forget_keys, insert_jobs
from paicluster.store.job_list import (
    JobQuery,
    ListPage,
    check_page,
    list_jobs,
    long_page,
    part_of_page,
)
from paicluster.store.rows import (
    ActiveJob,
    AttemptRow,
    EventRow,
    JobRow,
    JobSpecRow,
    PendingJob,
    TaskRow,
    decode_tags,
    encode_tags,
)
from paicluster.store.tables import job_specs, jobs, tasks
from paicluster.store.writer import job_token_id, request_check, summary_renderer, touch, touch_tokens
from paiprotocol.errors import NO_JOB, InvalidParameters, NotFound
from paiprotocol.jobs.extras import MAX_TAGS
from paiprotocol.jobs.states import SubState, job_state

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
    "PendingJob",
    "TaskRow",
    "active_jobs",
    "add_event",
    "add_tag",
    "all_tasks_of",
    "attempts_of",
    "check_page",
    "events_of",
    "forget_keys",
    "forget_tasks",
    "get_job",
    "get_job_by_id",
    "get_task",
    "ids_with",
    "insert_jobs",
    "insert_tasks",
    "job_spec",
    "list_jobs",
    "live_tasks_of",
    "long_page",
    "newest_id",
    "newest_named",
    "page_of_events",
    "part_of_page",
    "pending_jobs",
    "remove_tag",
    "resource_request_of",
    "set_execution_type",
    "states_of",
    "stop",
    "tags_of",
    "task_attempts_of",
    "task_details_of",
    "task_usage",
    "tasks_of",
    "update_job",
    "update_tasks",
    "upsert_attempt",
]

_log = logging.getLogger("paicluster.store")

_COLUMNS = tuple(field.name for field in fields(JobRow))
_ATTEMPT = _COLUMNS.index("attempt")
# The expression of the index.
_COMPLETION = "coalesce(jobs.completed_ms, 9223372036854775807)"
_ENDED = (SubState.ATTEMPT_COMPLETED.value, SubState.COMPLETED.value)
_jobs = select(*(jobs.c[name] for name in _COLUMNS))
_BY_FRAMEWORK = Prepared(_jobs.where(jobs.c.framework == bindparam("framework")))
_BY_ID = Prepared(_jobs.where(jobs.c.id == bindparam("id")))
_SPEC = Prepared(
    select(*(job_specs.c[field.name] for field in fields(JobSpecRow))).where(
        job_specs.c.job_id == bindparam("id")
    )
)
_unfinished = jobs.c.sub_state != literal_column("'Completed'")
_ACTIVE = Prepared(_jobs.where(_unfinished).order_by(jobs.c.id))
_ACTIVE_IDS = "SELECT id FROM jobs WHERE sub_state != 'Completed' ORDER BY id"
_ACTIVE_TASKS = Prepared(
    TASKS.join_from(jobs, tasks, (jobs.c.id == tasks.c.job_id) & (jobs.c.attempt == tasks.c.attempt))
    .where(_unfinished)
    .order_by(tasks.c.job_id, tasks.c.role_order, tasks.c.task_index, tasks.c.task_attempt)
)


def get_job(conn: Connection, framework: str) -> JobRow | None:
    """A job by its full name, ``user~name``."""
    row = _BY_FRAMEWORK.run(conn, framework=framework).fetchone()
    return None if row is None else JobRow(*row)


def get_job_by_id(conn: Connection, job_id: int) -> JobRow | None:
    row = _BY_ID.run(conn, id=job_id).fetchone()
    return None if row is None else JobRow(*row)


def newest_named(conn: Connection, name: str) -> JobRow | None:
    """The latest job of this name, of any user."""
    newest = _jobs.where(jobs.c.name == name).order_by(jobs.c.submission_ms.desc(), jobs.c.id.desc())
    row = conn.execute(newest.limit(1)).fetchone()
    return None if row is None else JobRow(*row)


def newest_id(conn: Connection) -> int:
    """The id of the latest job; 0 without any."""
    return int(conn.execute(select(func.max(jobs.c.id))).scalar() or 0)


def ids_with(conn: Connection, text: str, since: int) -> list[int]:
    """Ids of jobs from ``since`` on that contain a text, in order."""
    query = select(job_specs.c.job_id).where(job_specs.c.job_id >= since).order_by(job_specs.c.job_id)
    contains = dialect_of(conn).contains(job_specs.c.config + job_specs.c.job, text)
    return list(conn.execute(query.where(contains)).scalars())


def job_spec(conn: Connection, job_id: int) -> JobSpecRow | None:
    """Stored spec of a job."""
    row = _SPEC.run(conn, id=job_id).fetchone()
    if row is None:
        return None
    job, config, text, sealed = row
    # Most jobs are parsed as they were submitted: their text is stored once.
    return JobSpecRow(job, config, text or config, sealed)


def resource_request_of(conn: Connection, job_id: int) -> str:
    """Encoded resource request of a job."""
    query = select(job_specs.c.resource_request).where(job_specs.c.job_id == job_id)
    return str(conn.execute(query).scalar_one())


def pending_jobs(conn: Connection, job_ids: Sequence[int]) -> list[PendingJob]:
    """Those of these jobs that are pending and not to be stopped."""
    query = (
        select(jobs.c.id, jobs.c.vc, jobs.c.username, jobs.c.priority, job_specs.c.resource_request)
        .join(job_specs, job_specs.c.job_id == jobs.c.id)
        .where(
            jobs.c.id.in_(job_ids),
            jobs.c.sub_state == SubState.CREATION_PENDING.value,
            jobs.c.execution_type == "START",
        )
        .order_by(jobs.c.id)
    )
    return [PendingJob(*row) for row in conn.execute(query)]


def names_of(conn: Connection, job_ids: Collection[int]) -> dict[int, str]:
    """Full names of those of these jobs that exist."""
    rows = conn.execute(select(jobs.c.id, jobs.c.framework).where(jobs.c.id.in_(job_ids)))
    return {row.id: row.framework for row in rows}


def latest_starts(conn: Connection, not_before_ms: int) -> dict[tuple[str, str], int]:
    """Latest start of the jobs that finished since then, by (virtual cluster, user)."""
    query = (
        select(jobs.c.vc, jobs.c.username, func.max(jobs.c.launched_ms))
        .where(literal_column(_COMPLETION) >= not_before_ms, jobs.c.completed_ms.is_not(None))
        .group_by(jobs.c.vc, jobs.c.username)
    )
    return {(vc, user): launched or 0 for vc, user, launched in conn.execute(query)}


def states_of(conn: Connection, frameworks: Sequence[str]) -> dict[str, str]:
    """States of those of these jobs that exist, by full name."""
    states: dict[str, str] = {}
    # At a start these are the dependencies of all jobs: more than one statement can have as parameters.
    for some in chunks(frameworks):
        rows = conn.execute(select(jobs.c.framework, jobs.c.state).where(jobs.c.framework.in_(some)))
        states.update((row.framework, row.state) for row in rows)
    return states


def active_jobs(conn: Connection) -> list[ActiveJob]:
    """Every unfinished job, oldest first, with all task attempts of its current attempt.

    A job with a damaged row is left out, and logged.
    """
    try:
        rows = _ACTIVE.run(conn).fetchall()
        tasks = task_rows(_ACTIVE_TASKS.run(conn).fetchall())
        by_job: dict[int, list[TaskRow]] = {}
        for task in tasks:
            by_job.setdefault(task.job_id, []).append(task)
        active = [ActiveJob(job, tuple(by_job.get(job.id, ()))) for job in (JobRow(*row) for row in rows)]
    except sqlite3.OperationalError:
        # A text that is not UTF-8: which one it is, is found job by job.
        ids = [int(job_id) for (job_id,) in execute(conn, _ACTIVE_IDS, ()).fetchall()]
        active = [job for job_id in ids if (job := _active_job(conn, job_id)) is not None]
    return [job for job in active if _is_readable(job)]


def _active_job(conn: Connection, job_id: int) -> ActiveJob | None:
    try:
        job = get_job_by_id(conn, job_id)
        return None if job is None else ActiveJob(job, tuple(tasks_of(conn, job_id, job.attempt)))
    except sqlite3.OperationalError as error:
        _log.error("The job with the id %d cannot be read; leaving it unchanged: %s", job_id, error)
        return None


def _is_readable(active: ActiveJob) -> bool:
    """Whether its rows have the types that the controller computes with."""
    try:
        msgspec.convert(asdict(active.job), JobRow)
        for task in active.tasks:
            msgspec.convert(asdict(task), TaskRow)
    except msgspec.ValidationError as error:
        name = active.job.framework
        _log.error("The job %s has a damaged row; leaving it unchanged: %s", name, error)
        return False
    return True


def running_jobs(conn: Connection) -> list[JobRow]:
    """The jobs that run now."""
    return [JobRow(*row) for row in conn.execute(_jobs.where(jobs.c.state == "RUNNING"))]


def update_job(conn: Connection, job_id: int, **columns: Any) -> JobRow:
    """Set columns of a job and render its summary; the job afterwards.

    ``state`` follows from ``sub_state`` and ``exit_code`` and is not set by the caller.
    """
    row = _BY_ID.run(conn, id=job_id).fetchone()
    if row is None:
        raise NotFound(f"There is no job with the id {job_id}.", code=NO_JOB)
    now = dict(zip(_COLUMNS, row, strict=True))
    now.update(columns)
    columns["state"] = now["state"] = job_state(now["sub_state"], now["exit_code"])
    after = JobRow(**now)
    columns["summary"] = summary_renderer(conn)(after)
    columns["of_id"] = job_id
    _update(tuple(columns)).run(conn, **columns).close()
    touch(conn, job_id)
    before_attempt = row[_ATTEMPT]
    if after.attempt != before_attempt or after.sub_state in _ENDED:
        # The token of the attempt's tasks is no longer valid.
        touch_tokens(conn, (job_token_id(job_id, before_attempt),))
    return after


@lru_cache(maxsize=64)
def _update(names: tuple[str, ...]) -> Prepared:
    values: dict[Any, Any] = {jobs.c[name]: bindparam(name) for name in names if name != "of_id"}
    return Prepared(update(jobs).where(jobs.c.id == bindparam("of_id")).values(values))


def set_execution_type(conn: Connection, job_id: int, value: str) -> JobRow:
    """Set what the user wants of the job: START or STOP."""
    request_check(conn, job_id)
    return update_job(conn, job_id, execution_type=value)


def stop(conn: Connection, job_id: int) -> None:
    """Request a job to stop; no effect when it is finished or deleted."""
    job = get_job_by_id(conn, job_id)
    if job is not None and job.sub_state != SubState.COMPLETED.value:
        set_execution_type(conn, job_id, "STOP")


def live_tasks_of(conn: Connection, job_id: int) -> list[str]:
    """Uids of a job's tasks that have not ended."""
    job = get_job_by_id(conn, job_id)
    return [] if job is None else [task.uid for task in tasks_of(conn, job_id, job.attempt) if not task.ended]


def tags_of(conn: Connection, job_id: int) -> list[str]:
    """A job's tags, sorted."""
    job = get_job_by_id(conn, job_id)
    return [] if job is None else decode_tags(job.tags)


def add_tag(conn: Connection, job_id: int, tag: str) -> None:
    """Add a tag to a job; adding it again has no effect. InvalidParameters if the job has too many."""
    tags = tags_of(conn, job_id)
    if tag not in tags:
        if len(tags) >= MAX_TAGS:
            raise InvalidParameters(
                f"The job has {len(tags)} tags, which is the limit.", hint="Remove one of them first."
            )
        job = update_job(conn, job_id, tags=encode_tags((*tags, tag)))
        insert_rows(conn, "job_tags", ("job_id", "tag", "submission_ms"), [(job_id, tag, job.submission_ms)])


def remove_tag(conn: Connection, job_id: int, tag: str) -> bool:
    """Remove a tag from a job; False when it does not have it."""
    tags = tags_of(conn, job_id)
    if tag not in tags:
        return False
    tags.remove(tag)
    update_job(conn, job_id, tags=encode_tags(tags))
    execute(conn, "DELETE FROM job_tags WHERE job_id = ? AND tag = ?", (job_id, tag)).close()
    return True
