"""Jobs as the database has them, in the pieces that the loop takes up."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from paicluster.controller.record import COMPLETED, PENDING
from paicluster.store import jobs
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow, TaskRow

Loaded = tuple[JobRow, tuple[TaskRow, ...], JobSpecRow, AttemptRow | None]


def read_active(conn: Connection) -> tuple[list[JobRow], list[Loaded]]:
    """The jobs that merely wait; and all others that are not over, whole."""
    waiting: list[JobRow] = []
    loaded: list[Loaded] = []
    for active in jobs.active_jobs(conn):
        job = active.job
        if job.sub_state == PENDING and job.execution_type == "START":
            waiting.append(job)
            continue
        spec = jobs.job_spec(conn, job.id)
        if spec is not None:
            attempt = next((a for a in jobs.attempts_of(conn, job.id) if a.attempt == job.attempt), None)
            loaded.append((job, active.tasks, spec, attempt))
    return waiting, loaded


def waiting_since(
    conn: Connection, waiting: Iterable[JobRow], started: Iterable[JobRow], not_before_ms: int
) -> dict[tuple[str, str], int]:
    """Since when whoever waits has got nothing, by virtual cluster and user."""
    since: dict[tuple[str, str], int] = {}
    latest = jobs.latest_starts(conn, not_before_ms)
    for job in waiting:
        place = job.vc, job.username
        since[place] = min(since.get(place, job.submission_ms), job.submission_ms)
        if job.attempt:
            launched = [attempt.launched_ms or 0 for attempt in jobs.attempts_of(conn, job.id)]
            latest[place] = max([latest.get(place, 0), *launched])
    for job in started:
        place = job.vc, job.username
        latest[place] = max(latest.get(place, 0), job.launched_ms or 0)
    return {place: max(began, latest.get(place, 0)) for place, began in since.items()}


def read_some(
    conn: Connection, unknown: list[int], known: list[int]
) -> tuple[list[tuple[JobRow, JobSpecRow]], dict[int, str]]:
    fresh = []
    for job_id in unknown:
        row = jobs.get_job_by_id(conn, job_id)
        spec = jobs.job_spec(conn, job_id)
        if row is not None and spec is not None and row.sub_state != COMPLETED:
            fresh.append((row, spec))
    return fresh, {
        job_id: row.execution_type
        for job_id in known
        if (row := jobs.get_job_by_id(conn, job_id)) is not None
    }
