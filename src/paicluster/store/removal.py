"""Removal of finished jobs from the database, with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, and_, delete, func, select

from paicluster.store.dialect_sql import dialect_of
from paicluster.store.tables import job_specs, job_templates, jobs, source_owners, tasks
from paicluster.store.writer import touch_all

_FINISHED = jobs.c.sub_state == "Completed"


def count_finished(conn: Connection) -> int:
    """Number of finished jobs."""
    return int(conn.execute(select(func.count()).select_from(jobs).where(_FINISHED)).scalar_one())


def oldest_finished(
    conn: Connection, limit: int, *, before_ms: int | None = None, excluding: Collection[str] = ()
) -> list[int]:
    """The jobs that finished first; with ``before_ms`` only those that finished before it.

    ``excluding``: full names of jobs to leave out.
    """
    query = select(jobs.c.id, jobs.c.framework).where(_FINISHED)
    if before_ms is not None:
        query = query.where(jobs.c.completed_ms < before_ms)
    # The exclusions may exceed the parameters of one statement, so they are filtered here: reading that many
    # rows more leaves enough of the others.
    rows = conn.execute(query.order_by(jobs.c.completed_ms, jobs.c.id).limit(limit + len(excluding)))
    return [job_id for job_id, framework in rows if framework not in excluding][:limit]


def uids_of(conn: Connection, job_ids: Sequence[int]) -> dict[int, list[str]]:
    """Uids of all task attempts of these jobs."""
    uids: dict[int, list[str]] = {job_id: [] for job_id in job_ids}
    for job_id, uid in conn.execute(select(tasks.c.job_id, tasks.c.uid).where(tasks.c.job_id.in_(job_ids))):
        uids[job_id].append(uid)
    return uids


def finished_uids(conn: Connection) -> set[str]:
    """Uids of all task attempts of finished jobs."""
    return set(
        conn.execute(select(tasks.c.uid).join(jobs, jobs.c.id == tasks.c.job_id).where(_FINISHED)).scalars()
    )


def used_by_unfinished(conn: Connection, text: str) -> bool:
    """Whether an unfinished job contains this text: what it refers to must be kept."""
    query = select(jobs.c.id).join(job_specs, jobs.c.id == job_specs.c.job_id).where(~_FINISHED)
    contains = dialect_of(conn).contains(job_specs.c.config + job_specs.c.job, text)
    return conn.execute(query.where(contains).limit(1)).first() is not None


def used_by_template(conn: Connection, sha256: str) -> bool:
    """Whether a template of one of its owners names this source archive: others cannot use it."""
    is_owner = and_(source_owners.c.username == job_templates.c.username, source_owners.c.sha256 == sha256)
    query = select(job_templates.c.name).join(source_owners, is_owner)
    contains = dialect_of(conn).contains(job_templates.c.protocol, sha256)
    return conn.execute(query.where(contains).limit(1)).first() is not None


def unfinished_requests(conn: Connection, text: str) -> list[str]:
    """Resource requests of unfinished jobs that contain this text."""
    request = job_specs.c.resource_request
    query = select(request).join(jobs, jobs.c.id == job_specs.c.job_id).where(~_FINISHED)
    return list(conn.execute(query.where(dialect_of(conn).contains(request, text))).scalars())


def delete_jobs(conn: Connection, job_ids: Sequence[int]) -> int:
    """Delete finished jobs. Their names can be used again."""
    finished = list(conn.execute(select(jobs.c.id).where(_FINISHED, jobs.c.id.in_(job_ids))).scalars())
    if finished:
        dialect_of(conn).forget_jobs(conn, finished)
        conn.execute(delete(jobs).where(jobs.c.id.in_(finished)))
        touch_all(conn, finished)
    return len(finished)
