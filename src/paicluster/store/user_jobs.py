"""Jobs of one user with their texts and task counts, for lists that show more than a summary."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from paicluster.store.bulk_insert import chunks
from paicluster.store.rows import JobRow
from paicluster.store.tables import job_specs, jobs, tasks
from paiprotocol.jobs.states import STOP_CODES

_COLUMNS = tuple(field.name for field in fields(JobRow))
_RETRIED = "AttemptCompleted"
_COMPLETED = "Completed"
_RUNNING = "AttemptRunning"


class TaskCounts(NamedTuple):
    """Tasks of a role by state. Those that were stopped on purpose have neither succeeded nor failed."""

    active: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    def plus(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class UserJob:
    """``text``: the job as the cluster parses it. ``counts``: of its current attempt, by role."""

    row: JobRow
    text: str
    counts: dict[str, TaskCounts] = field(default_factory=dict)

    @property
    def total(self) -> TaskCounts:
        total = TaskCounts()
        for counts in self.counts.values():
            total = total.plus(counts)
        return total


def jobs_of_user(conn: Connection, username: str, limit: int) -> list[UserJob]:
    """A user's newest jobs, newest first."""
    query = (
        select(*(jobs.c[name] for name in _COLUMNS), job_specs.c.config, job_specs.c.job)
        .join(job_specs, job_specs.c.job_id == jobs.c.id)
        .where(jobs.c.username == username)
        .order_by(jobs.c.submission_ms.desc(), jobs.c.id.desc())
        .limit(limit)
    )
    user_jobs = [
        UserJob(JobRow(*row[:-2]), row[-1] or row[-2]) for row in map(tuple, conn.execute(query).fetchall())
    ]
    counts = _counts(conn, [job.row.id for job in user_jobs])
    for job in user_jobs:
        job.counts.update(counts.get(job.row.id, {}))
    return user_jobs


def jobs_named(conn: Connection, username: str, name: str, suffix: re.Pattern[str]) -> list[JobRow]:
    """The user's job of this name; without one, those whose name is this one and a suffix, newest first."""
    query = select(*(jobs.c[column] for column in _COLUMNS)).where(jobs.c.username == username)
    exact = conn.execute(query.where(jobs.c.name == name)).fetchone()
    if exact is not None:
        return [JobRow(*exact)]
    prefix = jobs.c.name >= f"{name}-", jobs.c.name < f"{name}."
    rows = conn.execute(query.where(*prefix).order_by(jobs.c.submission_ms.desc()))
    return [JobRow(*row) for row in rows if suffix.fullmatch(row.name, len(name))]


def _counts(conn: Connection, job_ids: Sequence[int]) -> dict[int, dict[str, TaskCounts]]:
    counts: dict[int, dict[str, TaskCounts]] = defaultdict(dict)
    for some in chunks(job_ids):
        query = (
            select(tasks.c.job_id, tasks.c.role, tasks.c.sub_state, tasks.c.exit_code, func.count())
            .join(jobs, (jobs.c.id == tasks.c.job_id) & (jobs.c.attempt == tasks.c.attempt))
            # Another attempt of the task follows, or will.
            .where(tasks.c.job_id.in_(some), tasks.c.sub_state != _RETRIED)
            .group_by(tasks.c.job_id, tasks.c.role, tasks.c.sub_state, tasks.c.exit_code)
        )
        for job_id, role, sub_state, exit_code, number in conn.execute(query):
            before = counts[job_id].get(role, TaskCounts())
            counts[job_id][role] = before.plus(_count(sub_state, exit_code, number))
    return counts


def _count(sub_state: str, exit_code: int | None, number: int) -> TaskCounts:
    if sub_state != _COMPLETED:
        return TaskCounts(active=number, running=number if sub_state == _RUNNING else 0)
    if exit_code == 0:
        return TaskCounts(succeeded=number)
    return TaskCounts(failed=0 if exit_code in STOP_CODES else number)
