"""Queries for administrators: running tasks, and jobs that have been pending for long."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from paicluster.store.compiled_statements import execute

_RUNNING = (
    "SELECT tasks.uid, jobs.username, jobs.name, jobs.debug_id, jobs.vc, tasks.role, tasks.task_index,"
    " tasks.node, tasks.ip, tasks.cpu, tasks.memory_mb, tasks.gpus, tasks.sub_state, tasks.created_ms,"
    " tasks.launched_ms"
    " FROM jobs JOIN tasks ON tasks.job_id = jobs.id AND tasks.attempt = jobs.attempt"
    " WHERE jobs.sub_state != 'Completed' AND tasks.completed_ms IS NULL"
    " ORDER BY jobs.id, tasks.role, tasks.task_index, tasks.task_attempt LIMIT ? OFFSET ?"
)
_LONG_PENDING = (
    "SELECT framework, username, vc, debug_id, submission_ms FROM jobs"
    " WHERE state = 'WAITING' AND submission_ms <= ?{} ORDER BY submission_ms LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class RunningTask:
    uid: str
    username: str
    job: str
    debug_id: str
    vc: str
    role: str
    task_index: int
    node: str | None
    ip: str | None
    cpu: float
    memory_mb: int
    gpus: str | None
    sub_state: str
    created_ms: int | None
    launched_ms: int | None


@dataclass(frozen=True, slots=True)
class LongPendingJob:
    framework: str
    username: str
    vc: str
    debug_id: str
    submission_ms: int


def running_tasks(conn: Connection, offset: int, limit: int) -> list[RunningTask]:
    """Tasks of unfinished jobs that have not ended, oldest job first."""
    return [RunningTask(*row) for row in execute(conn, _RUNNING, (limit, offset)).fetchall()]


def long_pending_jobs(
    conn: Connection, before_ms: int, username: str | None, limit: int
) -> list[LongPendingJob]:
    """Jobs submitted before this time that are still pending, oldest first; of one user if given."""
    text = _LONG_PENDING.format("" if username is None else " AND username = ?")
    values = (before_ms, limit) if username is None else (before_ms, username, limit)
    return [LongPendingJob(*row) for row in execute(conn, text, values).fetchall()]
