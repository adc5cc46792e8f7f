"""Inserts of jobs in batches: each is inserted, rejected, or recognised as a repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection

from openpaisdk.errors import JOB_CONFLICT, Conflict
from openpaisdk.protocol.states import SubState, framework_name, job_state
from openpaisdk.protocol.states import debug_id as make_debug_id
from paicluster.store.bulk_insert import chunks, insert_rows
from paicluster.store.compiled_statements import execute
from paicluster.store.job_summary import encode_tags, render_summary
from paicluster.store.rows import PendingJob
from paicluster.store.search import BATCH, index_jobs
from paicluster.store.sqlite import LAST_JOB_ID
from paicluster.store.writer import BatchOp, request_start, touch_all


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

    @property
    def framework(self) -> str:
        return framework_name(self.username, self.name)


@dataclass(frozen=True, slots=True)
class Inserted:
    """The job's id. ``repeated``: inserted by an earlier request with the same key and body."""

    id: int
    repeated: bool = False


InsertResult = Inserted | Conflict

_FIRST_SUB_STATE = SubState.CREATION_PENDING.value
_FIRST_STATE = job_state(_FIRST_SUB_STATE, None)

_JOB_COLUMNS = (
    "id", "summary", "framework", "username", "name", "debug_id", "vc", "priority", "state", "sub_state",
    "execution_type", "retries", "retries_user", "retries_platform", "platform_streak", "submission_ms",
    "created_ms", "total_gpus", "total_tasks", "total_roles", "attempt", "generation", "tags",
)  # fmt: skip
_SPEC_COLUMNS = ("job_id", "config", "job", "sealed", "resource_request")
_TAG_COLUMNS = ("job_id", "tag", "submission_ms")
_KEY_COLUMNS = ("username", "key", "body_sha256", "job_id", "created_ms")


def insert_jobs(conn: Connection, items: Sequence[NewJob]) -> list[InsertResult]:
    """Insert new jobs; for each item, in order, its id or the error.

    An existing framework name is a conflict. A known idempotency key gives the job of the first request when
    the body is the same, and a conflict when it is not.
    """
    results: list[InsertResult | None] = [None] * len(items)
    keys = _known_keys(conn, items)
    taken = _taken_names(conn, items)
    next_id = _next_id(conn)
    first_id = next_id
    new: list[tuple[int, NewJob]] = []
    for position, item in enumerate(items):
        key = (item.username, item.idempotency_key)
        if item.idempotency_key is not None and key in keys:
            results[position] = _repetition(item, *keys[key])
        elif item.framework in taken:
            results[position] = Conflict(
                f"Job {item.framework} already exists.", code=JOB_CONFLICT, hint="Choose another name."
            )
        else:
            new.append((next_id, item))
            results[position] = Inserted(next_id)
            taken.add(item.framework)
            if item.idempotency_key is not None:
                keys[key] = (item.body_sha256, next_id)
            next_id += 1
    if new:
        _insert(conn, new)
        touch_all(conn, range(first_id, next_id))
        request_start(conn, (_pending(job_id, item) for job_id, item in new))
    return [result for result in results if result is not None]


INSERT_JOB: BatchOp[NewJob, Inserted] = BatchOp("insert-job", insert_jobs)
"""``await store.write_batched(INSERT_JOB, new_job)``: the fast way to insert a job."""


def _insert(conn: Connection, new: list[tuple[int, NewJob]]) -> None:
    insert_rows(conn, "jobs", _JOB_COLUMNS, [_job_values(job_id, item) for job_id, item in new])
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
    first, last = new[0][0], new[-1][0]
    if (first - 1) // BATCH != last // BATCH:
        index_jobs(conn, last)


def _job_values(job_id: int, item: NewJob) -> tuple[object, ...]:
    framework = item.framework
    debug_id = make_debug_id(framework)
    submission_ms = _whole_seconds(item.submission_ms)
    tags = "[]" if not item.tags else encode_tags(item.tags)
    summary = render_summary(
        debug_id=debug_id,
        name=item.name,
        username=item.username,
        state=_FIRST_STATE,
        sub_state=_FIRST_SUB_STATE,
        execution_type="START",
        tags=tags,
        retries=0,
        retries_user=0,
        retries_platform=0,
        retry_delay_s=None,
        submission_ms=submission_ms,
        created_ms=item.submission_ms,
        launched_ms=None,
        completed_ms=None,
        exit_code=None,
        vc=item.vc,
        total_gpus=item.total_gpus,
        total_tasks=item.total_tasks,
        total_roles=item.total_roles,
        priority=item.priority,
    )
    return (
        job_id, summary, framework, item.username, item.name, debug_id, item.vc, item.priority, _FIRST_STATE,
        _FIRST_SUB_STATE, "START", 0, 0, 0, 0, submission_ms, item.submission_ms,
        item.total_gpus, item.total_tasks, item.total_roles, 0, item.generation, tags,
    )  # fmt: skip


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


def _next_id(conn: Connection) -> int:
    # There is only one writer, so ids are assigned here: no statement has to return them.
    row = execute(conn, LAST_JOB_ID).fetchone()
    return 1 if row is None else int(row[0]) + 1


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
