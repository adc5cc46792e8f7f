"""Taking finished jobs out of the database, with everything that hangs on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, func, select

from paicluster.store.search import forget_jobs
from paicluster.store.tables import job_specs, jobs, tasks
from paicluster.store.writer import touch_all

_OVER = jobs.c.sub_state == "Completed"


def count_over(conn: Connection) -> int:
    """How many jobs are over."""
    return int(conn.execute(select(func.count()).select_from(jobs).where(_OVER)).scalar_one())


def oldest_over(
    conn: Connection, limit: int, *, before_ms: int | None = None, but: Collection[str] = ()
) -> list[int]:
    """The jobs that have been over for longest; only those that ended before then, if that is given.

    ``but``: full names of jobs that are left alone.
    """
    query = select(jobs.c.id, jobs.c.framework).where(_OVER)
    if before_ms is not None:
        query = query.where(jobs.c.completed_ms < before_ms)
    # They may be more than one statement may name; with so many more there are enough of the others.
    found = conn.execute(query.order_by(jobs.c.completed_ms, jobs.c.id).limit(limit + len(but)))
    return [job_id for job_id, framework in found if framework not in but][:limit]


def uids_of(conn: Connection, job_ids: Sequence[int]) -> dict[int, list[str]]:
    """Every task attempt that these jobs ever had."""
    found: dict[int, list[str]] = {job_id: [] for job_id in job_ids}
    for job_id, uid in conn.execute(select(tasks.c.job_id, tasks.c.uid).where(tasks.c.job_id.in_(job_ids))):
        found[job_id].append(uid)
    return found


def uids_over(conn: Connection) -> set[str]:
    """Every task attempt of the jobs that are over."""
    return set(
        conn.execute(select(tasks.c.uid).join(jobs, jobs.c.id == tasks.c.job_id).where(_OVER)).scalars()
    )


def named_by_unfinished(conn: Connection, text: str) -> bool:
    """Whether a job that is not over has this text in it: what it names must be kept."""
    query = select(jobs.c.id).join(job_specs, jobs.c.id == job_specs.c.job_id).where(~_OVER)
    return (
        conn.execute(query.where(func.instr(job_specs.c.config + job_specs.c.job, text) > 0).limit(1)).first()
        is not None
    )


def unfinished_needs(conn: Connection, word: str) -> list[str]:
    """The needs with this word in them, of the jobs that are not over."""
    query = select(job_specs.c.need).join(jobs, jobs.c.id == job_specs.c.job_id).where(~_OVER)
    return list(conn.execute(query.where(func.instr(job_specs.c.need, word) > 0)).scalars())


def delete_jobs(conn: Connection, job_ids: Sequence[int]) -> int:
    """Remove jobs that are over. Their names are free again."""
    over = list(conn.execute(select(jobs.c.id).where(_OVER, jobs.c.id.in_(job_ids))).scalars())
    if over:
        forget_jobs(conn, over)
        conn.execute(delete(jobs).where(jobs.c.id.in_(over)))
        touch_all(conn, over)
    return len(over)
