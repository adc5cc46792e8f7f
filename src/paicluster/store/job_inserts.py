"""Inserts of jobs in batches: each is inserted, rejected, or recognised as a repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from sqlalchemy import Connection

from paicluster.store.bulk_insert import chunks, insert_rows
from paicluster.store.compiled_statements import execute
from paicluster.store.dialect_sql import dialect_of
from paicluster.store.job_origins import ParentJob, Submissions
from paicluster.store.rows import JobRow, PendingJob, encode_tags
from paicluster.store.writer import BatchOp, request_start, summary_renderer, touch_all
from paiprotocol.errors import JOB_CONFLICT, Conflict, Forbidden
from paiprotocol.jobs.states import SubState, debug_id, framework_name, job_state


class NewJob(NamedTuple):
    """A job to be inserted.

    ``config`` is the submitted text with masked secrets, ``job`` the JSON that the cluster parses,
    ``sealed`` the sealed secrets. With an ``idempotency_key`` comes ``body_sha256``, a digest (hex) of the
    request's body. ``generation`` is ``v1`` or ``v2``. ``resource_request``: encoded by the scheduler.
    """

    username: str
    name: str
    vc: str
    config: str
    job: str
    submission_ms: int
    total_gpus: int = 0
    total_tasks: int = 1
    total_roles: int = 1
    priority: str | None = None
    generation: str = "v2"
    resource_request: str = ""
    sealed: bytes | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    body_sha256: str = ""
    # The job that submits it, with its own token.
    parent: ParentJob | None = None

    @property
    def framework(self) -> str:
        return framework_name(self.username, self.name)


@dataclass(frozen=True, slots=True)
class Inserted:
    """The job's id. ``repeated``: inserted by an earlier request with the same key and body."""

    id: int
    repeated: bool = False


InsertResult = Inserted | Conflict | Forbidden

_FIRST_SUB_STATE = SubState.CREATION_PENDING.value
_FIRST_STATE = job_state(_FIRST_SUB_STATE, None)

# Those that have a value from the beginning.
_JOB_COLUMNS = (
    "id", "framework", "username", "name", "debug_id", "vc", "priority", "state", "sub_state",
    "execution_type", "retries", "retries_user", "retries_platform", "platform_streak", "submission_ms",
    "created_ms", "total_gpus", "total_tasks", "total_roles", "attempt", "generation", "tags",
)  # fmt: skip
_job_values = attrgetter(*_JOB_COLUMNS)
_SPEC_COLUMNS = ("job_id", "config", "job", "sealed", "resource_request")
_TAG_COLUMNS = ("job_id", "tag", "submission_ms")
_KEY_COLUMNS = ("username", "key", "body_sha256", "job_id", "created_ms")


def insert_jobs(conn: Connection, items: Sequence[NewJob]) -> list[InsertResult]:
    """Insert new jobs; for each item, in order, its id or the error.

    An existing framework name is a conflict. A job that submits too many others, or too deep, is refused. A
    known idempotency key gives the job of the first request when the body is the same, and a conflict when it
    is not.
    """
    results: list[InsertResult | None] = [None] * len(items)
    keys = _known_keys(conn, items)
    taken = _taken_names(conn, items)
    ids = iter(dialect_of(conn).next_job_ids(conn, len(items)))
    next_id = next(ids, 0)
    new: list[tuple[int, NewJob]] = []
    submissions = Submissions(conn)
    for position, item in enumerate(items):
        key = (item.username, item.idempotency_key)
        if item.idempotency_key is not None and key in keys:
            results[position] = _repetition(item, *keys[key])
        elif item.framework in taken:
            results[position] = Conflict(
                f"Job {item.framework} already exists.", code=JOB_CONFLICT, hint="Choose another name."
            )
        elif item.parent is not None and (refusal := submissions.add(item.parent, next_id)):
            results[position] = refusal
        else:
            new.append((next_id, item))
            results[position] = Inserted(next_id)
            taken.add(item.framework)
            if item.idempotency_key is not None:
                keys[key] = (item.body_sha256, next_id)
            next_id = next(ids, 0)
    if new:
        _insert(conn, new)
        submissions.write()
        touch_all(conn, (job_id for job_id, _ in new))
        request_start(conn, (_pending(job_id, item) for job_id, item in new))
    return [result for result in results if result is not None]


INSERT_JOB: BatchOp[NewJob, Inserted] = BatchOp("insert-job", insert_jobs)
"""``await store.write_batched(INSERT_JOB, new_job)``: the fast way to insert a job."""


def _insert(conn: Connection, new: list[tuple[int, NewJob]]) -> None:
    render = summary_renderer(conn)
    rows = [_new_row(job_id, item) for job_id, item in new]
    insert_rows(conn, "jobs", (*_JOB_COLUMNS, "summary"), [(*_job_values(row), render(row)) for row in rows])
    insert_rows(
        conn,
        "job_specs",
        _SPEC_COLUMNS,
        [
            (
                job_id,
                item.config,
                "" if item.job == item.config else item.job,
                item.sealed,
                item.resource_request,
            )
            for job_id, item in new
        ],
    )
    tags = [
        (job_id, tag, _whole_seconds(item.submission_ms))
        for job_id, item in new
        if item.tags
        for tag in sorted(set(item.tags))
    ]
    insert_rows(conn, "job_tags", _TAG_COLUMNS, tags)
    keys = [
        (item.username, item.idempotency_key, item.body_sha256, job_id, item.submission_ms)
        for job_id, item in new
        if item.idempotency_key is not None
    ]
    insert_rows(conn, "idempotency", _KEY_COLUMNS, keys)
    dialect_of(conn).index_jobs(conn, new[0][0], new[-1][0])


def _new_row(job_id: int, item: NewJob) -> JobRow:
    framework = item.framework
    return JobRow(
        id=job_id,
        framework=framework,
        username=item.username,
        name=item.name,
        debug_id=debug_id(framework),
        vc=item.vc,
        priority=item.priority,
        state=_FIRST_STATE,
        sub_state=_FIRST_SUB_STATE,
        execution_type="START",
        retries=0,
        retries_user=0,
        retries_platform=0,
        platform_streak=0,
        retry_delay_s=None,
        retry_at_ms=None,
        submission_ms=_whole_seconds(item.submission_ms),
        created_ms=item.submission_ms,
        launched_ms=None,
        completed_ms=None,
        exit_code=None,
        total_gpus=item.total_gpus,
        total_tasks=item.total_tasks,
        total_roles=item.total_roles,
        attempt=0,
        generation=item.generation,
        tags=encode_tags(item.tags) if item.tags else "[]",
    )


def _pending(job_id: int, item: NewJob) -> PendingJob:
    return PendingJob(job_id, item.vc, item.username, item.priority, item.resource_request)


def _whole_seconds(time_ms: int) -> int:
    # So that the submission time is never after the creation time, as in OpenPAI.
    return time_ms // 1000 * 1000


def _repetition(item: NewJob, body_sha256: str, job_id: int) -> InsertResult:
    if body_sha256 == item.body_sha256:
        return Inserted(job_id, repeated=True)
    return Conflict(
        f"The idempotency key {item.idempotency_key!r} was used before with another job.",
        code="IdempotencyKeyError",
        status=422,
        hint="Use a fresh key for each new job.",
    )


def _known_keys(conn: Connection, items: Sequence[NewJob]) -> dict[tuple[str, str | None], tuple[str, int]]:
    keys = [item.idempotency_key for item in items if item.idempotency_key is not None]
    known: dict[tuple[str, str | None], tuple[str, int]] = {}
    for chunk in chunks(keys):
        rows = execute(conn, _keys_text(len(chunk)), chunk).fetchall()
        known.update({(username, key): (digest, job_id) for username, key, digest, job_id in rows})
    return known


def _taken_names(conn: Connection, items: Sequence[NewJob]) -> set[str]:
    taken: set[str] = set()
    for chunk in chunks([item.framework for item in items]):
        taken.update(row[0] for row in execute(conn, _names_text(len(chunk)), chunk).fetchall())
    return taken


@lru_cache
def _keys_text(size: int) -> str:
    return (
        f"SELECT username, key, body_sha256, job_id FROM idempotency WHERE key IN ({', '.join('?' * size)})"
    )


@lru_cache
def _names_text(size: int) -> str:
    return f"SELECT framework FROM jobs WHERE framework IN ({', '.join('?' * size)})"


def forget_keys(conn: Connection, before_ms: int) -> int:
    """Delete older idempotency keys; a later repetition is a new request."""
    return execute(conn, "DELETE FROM idempotency WHERE created_ms < ?", (before_ms,)).rowcount
