"""Taking jobs in: many at once, each inserted, refused, or recognised as a repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, tuple_

from openpaisdk.errors import Conflict
from openpaisdk.protocol.states import debug_id as make_debug_id
from openpaisdk.protocol.states import framework_name, job_state
from paicluster.store.bulk import insert_rows
from paicluster.store.summary import render_summary
from paicluster.store.tables import idempotency, job_specs, job_tags, jobs
from paicluster.store.writer import BatchOp, request_all, touch_all


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it comes through the door.

    ``config`` is what was submitted with its secrets masked, ``job`` the JSON the cluster re-reads,
    ``sealed`` the sealed secrets. With an ``idempotency_key`` comes ``body_sha256``, the digest (hex) of the
    request's body. ``generation`` is ``v1`` or ``v2``.
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
    sealed: bytes | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    body_sha256: str = ""

    @property
    def framework(self) -> str:
        return framework_name(self.username, self.name)


@dataclass(frozen=True, slots=True)
class Inserted:
    """The job's id. ``repeated``: it was here already, from an earlier request with the same key and body."""

    id: int
    repeated: bool = False


InsertResult = Inserted | Conflict

_FIRST_SUB_STATE = "AttemptCreationPending"

_JOB_COLUMNS = (
    "id", "framework", "username", "name", "debug_id", "vc", "priority", "state", "sub_state",
    "execution_type", "retries", "retries_user", "retries_platform", "platform_streak",
    "submission_ms", "created_ms", "total_gpus", "total_tasks", "total_roles", "attempt", "generation",
    "search", "summary",
)  # fmt: skip
_SPEC_COLUMNS = ("job_id", "config", "job", "sealed")
_KEY_COLUMNS = ("username", "key", "body_sha256", "job_id", "created_ms")


def insert_jobs(conn: Connection, items: Sequence[NewJob]) -> list[InsertResult]:
    """Insert what is new; for each item, in order, its id or why not.

    A framework name that exists is a conflict. An idempotency key seen before gives the first answer's
    job when the body is the same, and a conflict when it is not.
    """
    results: list[InsertResult | None] = [None] * len(items)
    keys = _known_keys(conn, items)
    taken = _taken_names(conn, items)
    next_id = _next_id(conn)
    first_id = next_id
    new: list[tuple[int, NewJob]] = []
    for place, item in enumerate(items):
        key = (item.username, item.idempotency_key)
        if item.idempotency_key is not None and key in keys:
            results[place] = _repetition(item, *keys[key])
        elif item.framework in taken:
            results[place] = Conflict(f"Job {item.framework} already exists.", hint="Choose another name.")
        else:
            new.append((next_id, item))
            results[place] = Inserted(next_id)
            taken.add(item.framework)
            if item.idempotency_key is not None:
                keys[key] = (item.body_sha256, next_id)
            next_id += 1
    if new:
        _insert(conn, new)
        touch_all(conn, range(first_id, next_id))
        request_all(conn, range(first_id, next_id))
    return [result for result in results if result is not None]


INSERT_JOB: BatchOp[NewJob, Inserted] = BatchOp("insert-job", insert_jobs)
"""``await store.write_batched(INSERT_JOB, new_job)``: the quick way to take a job in."""


def _insert(conn: Connection, new: list[tuple[int, NewJob]]) -> None:
    insert_rows(conn, jobs, _JOB_COLUMNS, [_job_values(job_id, item) for job_id, item in new])
    insert_rows(
        conn, job_specs, _SPEC_COLUMNS, [(job_id, item.config, item.job, item.sealed) for job_id, item in new]
    )
    tags = [(job_id, tag) for job_id, item in new for tag in dict.fromkeys(item.tags)]
    if tags:
        insert_rows(conn, job_tags, ("job_id", "tag"), tags)
    keys = [
        (item.username, item.idempotency_key, item.body_sha256, job_id, item.submission_ms)
        for job_id, item in new
        if item.idempotency_key is not None
    ]
    if keys:
        insert_rows(conn, idempotency, _KEY_COLUMNS, keys)


def _job_values(job_id: int, item: NewJob) -> tuple[object, ...]:
    framework = item.framework
    debug_id = make_debug_id(framework)
    state = job_state(_FIRST_SUB_STATE, None)
    # Whole seconds, so that it is never after the creation, as OpenPAI has it.
    submission_ms = item.submission_ms // 1000 * 1000
    summary = render_summary(
        debug_id=debug_id,
        name=item.name,
        username=item.username,
        state=state,
        sub_state=_FIRST_SUB_STATE,
        execution_type="START",
        tags=sorted(set(item.tags)),
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
    search = f"{item.name}\n{item.username}\n{item.vc}"
    return (
        job_id, framework, item.username, item.name, debug_id, item.vc, item.priority, state,
        _FIRST_SUB_STATE, "START", 0, 0, 0, 0, submission_ms, item.submission_ms,
        item.total_gpus, item.total_tasks, item.total_roles, 0, item.generation, search, summary,
    )  # fmt: skip


def _repetition(item: NewJob, body_sha256: str, job_id: int) -> InsertResult:
    if body_sha256 == item.body_sha256:
        return Inserted(job_id, repeated=True)
    return Conflict(
        f"The idempotency key {item.idempotency_key!r} was used before, with another job.",
        code="IdempotencyKeyError",
        status=422,
        hint="Use a fresh key for each new job.",
    )


def _known_keys(conn: Connection, items: Sequence[NewJob]) -> dict[tuple[str, str | None], tuple[str, int]]:
    wanted = [(item.username, item.idempotency_key) for item in items if item.idempotency_key is not None]
    if not wanted:
        return {}
    rows = conn.execute(_KEYS, {"wanted": wanted})
    return {(row.username, row.key): (row.body_sha256, row.job_id) for row in rows}


def _taken_names(conn: Connection, items: Sequence[NewJob]) -> set[str]:
    return set(conn.execute(_NAMES, {"wanted": [item.framework for item in items]}).scalars())


def _next_id(conn: Connection) -> int:
    # Ours is the only writer, so the ids can be given here: no statement has to hand them back.
    last = conn.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").scalar()
    return int(last or 0) + 1


_KEYS = select(
    idempotency.c.username, idempotency.c.key, idempotency.c.body_sha256, idempotency.c.job_id
).where(tuple_(idempotency.c.username, idempotency.c.key).in_(bindparam("wanted", expanding=True)))
_NAMES = select(jobs.c.framework).where(jobs.c.framework.in_(bindparam("wanted", expanding=True)))
