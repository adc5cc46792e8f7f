"""Origins of jobs: which job submitted a job, and how many jobs a job has submitted.

A program that submits itself would do so for ever. Depth and number of what a job submits, with its own
token, are therefore limited. A job that a user submitted has depth 0.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from sqlalchemy import Connection

from paicluster.store.compiled_statements import execute
from paiprotocol.errors import Forbidden

DEPTH_EXCEEDED = "SubmissionDepthError"
NUMBER_EXCEEDED = "SubmissionNumberError"

_MAX_NAMES = 20
"""Of a longer chain the last jobs are kept."""


class SubmissionLimits(NamedTuple):
    """Limits of what jobs submit; None: not limited."""

    depth: int | None = 3
    number: int | None = 1000


DEFAULT_LIMITS = SubmissionLimits()


class ParentJob(NamedTuple):
    """The job whose token submits another one."""

    job_id: int
    limits: SubmissionLimits


class _Origin(NamedTuple):
    name: str
    depth: int
    chain: tuple[str, ...]
    submitted: int


class Submissions:
    """Jobs that jobs submit within one transaction; they are recorded once their own rows are inserted."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._origins: dict[int, _Origin] = {}
        self._children: list[tuple[int, int]] = []

    def add(self, parent: ParentJob, job_id: int) -> Forbidden | None:
        """Add the job with this id, or return why it is refused."""
        origin = self._origin(parent.job_id)
        if origin is None:
            return Forbidden("The job that submits this one was deleted.", hint="Nothing was submitted.")
        refusal = _refusal(origin, parent.limits)
        if refusal is None:
            self._origins[parent.job_id] = origin._replace(submitted=origin.submitted + 1)
            self._children.append((job_id, parent.job_id))
        return refusal

    def write(self) -> None:
        for job_id, parent in self._children:
            origin = self._origins[parent]
            chain = json.dumps((*origin.chain, origin.name)[-_MAX_NAMES:])
            _write(self._conn, job_id, origin.depth + 1, chain, 0)
        for parent in {parent for _, parent in self._children}:
            origin = self._origins[parent]
            _write(self._conn, parent, origin.depth, json.dumps(origin.chain), origin.submitted)

    def _origin(self, job_id: int) -> _Origin | None:
        if job_id not in self._origins:
            row = execute(self._conn, _READ, (job_id,)).fetchone()
            if row is None:  # deleted since its token was verified
                return None
            name, depth, chain, submitted = row
            self._origins[job_id] = _Origin(
                str(name), int(depth or 0), tuple(json.loads(chain or "[]")), int(submitted or 0)
            )
        return self._origins[job_id]


_READ = (
    "SELECT jobs.name, job_origins.depth, job_origins.chain, job_origins.submitted FROM jobs"
    " LEFT JOIN job_origins ON job_origins.job_id = jobs.id WHERE jobs.id = ?"
)
_WRITE = (
    "INSERT INTO job_origins (job_id, depth, chain, submitted) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (job_id) DO UPDATE SET submitted = excluded.submitted"
)


def _write(conn: Connection, job_id: int, depth: int, chain: str, submitted: int) -> None:
    execute(conn, _WRITE, (job_id, depth, chain, submitted)).close()


def _refusal(origin: _Origin, limits: SubmissionLimits) -> Forbidden | None:
    if limits.depth is not None and origin.depth >= limits.depth:
        return Forbidden(_too_deep(origin, limits.depth), code=DEPTH_EXCEEDED, hint=_DEPTH_HINT)
    if limits.number is not None and origin.submitted >= limits.number:
        return Forbidden(
            f"Job {origin.name} has submitted {origin.submitted} jobs: one job may submit {limits.number}.",
            code=NUMBER_EXCEEDED,
            hint="Submit the others from outside of the job, or as the tasks of one job (pai sub --array). "
            "An administrator sets limits.submissions-per-job in cluster.yaml.",
        )
    return None


_DEPTH_HINT = (
    "If a program or a notebook submits itself, let it do so only outside of batch jobs. An administrator "
    "sets limits.submission-depth in cluster.yaml."
)


def _too_deep(origin: _Origin, limit: int) -> str:
    if not limit:
        return f"Job {origin.name} cannot submit a job: on this cluster jobs submit none."
    dots = ("...",) if len(origin.chain) < origin.depth else ()
    chain = " -> ".join((*dots, *origin.chain, origin.name))
    return (
        f"Job {origin.name} cannot submit a job: jobs that jobs submit may be {limit} deep, and it is as "
        f"deep already ({chain})."
    )
