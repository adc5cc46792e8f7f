"""Taking finished jobs out of the database, with everything that hangs on them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select

from paicluster.store.search import forget_jobs
from paicluster.store.tables import job_specs, jobs, tasks

_OVER = jobs.c.sub_state == "Completed"


def count_over(conn: Connection) -> int:
    """How many jobs are over."""
    return int(conn.execute(select(func.count()).select_from(jobs).where(_OVER)).scalar_one())


def oldest_over(conn: Connection, limit: int, *, before_ms: int | None = None) -> list[int]:
    """The jobs that have been over for longest; only those that ended before then, if that is given."""
    query = select(jobs.c.id).where(_OVER)
    if before_ms is not None:
        query = query.where(jobs.c.completed_ms < before_ms)
    return list(conn.execute(query.order_by(jobs.c.completed_ms, jobs.c.id).limit(limit)).scalars())


def uids_of(conn: Connection, job_ids: Sequence[int]) -> dict[int, list[str]]:
    """Every task attempt that these jobs ever had."""
    found: dict[int, list[str]] = {job_id: [] for job_id in job_ids}
    for job_id, uid in conn.execute(select(tasks.c.job_id, tasks.c.uid).where(tasks.c.job_id.in_(job_ids))):
        found[job_id].append(uid)
    return found


def unfinished_texts(conn: Connection) -> list[str]:
    """The texts of the jobs that are not over: what they name must be kept."""
    query = select(job_specs.c.job).join(jobs, jobs.c.id == job_specs.c.job_id).where(~_OVER)
    return list(conn.execute(query).scalars())


def delete_jobs(conn: Connection, job_ids: Sequence[int]) -> int:
    """Remove jobs that are over. Their names are free again."""
    over = list(conn.execute(select(jobs.c.id).where(_OVER, jobs.c.id.in_(job_ids))).scalars())
    if over:
        forget_jobs(conn, over)
        conn.execute(delete(jobs).where(jobs.c.id.in_(over)))
    return len(over)
