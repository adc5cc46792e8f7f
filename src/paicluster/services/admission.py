"""Taking a job in: one way for all, whichever version of the API it came through."""

from __future__ import annotations

import hashlib
import json
import time

from starlette.requests import Request

from openpaisdk.errors import NO_JOB, Forbidden, InvalidParameters, NotFound
from openpaisdk.protocol import JobSpec, mask_secrets
from openpaisdk.protocol.extras import storages_named
from openpaisdk.protocol.states import framework_name
from paicluster.api.context import Context, context
from paicluster.api.middleware.audit import set_subject
from paicluster.auth.tokens import Identity
from paicluster.scheduler.resource_requests import SchedulingRequest as Wanted
from paicluster.scheduler.resource_requests import encode, request_of
from paicluster.services.file_service import storage_user
from paicluster.store import jobs
from paicluster.store.job_inserts import INSERT_JOB, NewJob

_KEY_LENGTH = 255
MOST_TASKS = 10_000


def job_text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidParameters(f"The job must be UTF-8 text; its byte {error.start} is not.") from None


async def admit(
    request: Request, identity: Identity, job: JobSpec, text: str, body: bytes, *, v1: str | None = None
) -> None:
    """Write a job into the database, on disk, or say why not.

    ``text`` is the job as the cluster will read it again, ``body`` what the request brought. ``v1`` is what
    was submitted where that was a version 1 job.
    """
    ctx = context(request)
    set_subject(request, f"{identity.username}~{job.name}")
    _check_sources(ctx, job)
    _check_cluster(ctx, identity, job.virtual_cluster)
    _check_storages(ctx, identity, job)
    if job.total_tasks > MOST_TASKS:
        raise InvalidParameters(f"A job may have {MOST_TASKS} tasks at most; this one has {job.total_tasks}.")
    wanted = request_of(job, identity.username)
    await _check_conditions(ctx, wanted)
    config, sealed = text, None
    if job.secrets:
        config = mask_secrets(text)
        text = json.dumps({**job.raw, "secrets": "******"}, ensure_ascii=False)
        framework = framework_name(identity.username, job.name)
        sealed = ctx.sealer.seal(json.dumps(dict(job.secrets)).encode(), framework)
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _KEY_LENGTH:
        raise InvalidParameters(f"An Idempotency-Key has 1 to {_KEY_LENGTH} characters.")
    new = NewJob(
        username=identity.username,
        name=job.name,
        vc=job.virtual_cluster,
        config=config if v1 is None else v1,
        job=text,
        submission_ms=int(time.time() * 1000),
        total_gpus=job.total_gpus,
        total_tasks=job.total_tasks,
        total_roles=len(job.task_roles),
        priority=job.priority,
        generation="v2" if v1 is None else "v1",
        need=encode(wanted),
        sealed=sealed,
        idempotency_key=key,
        body_sha256=hashlib.sha256(body).hexdigest() if key is not None else "",
    )
    inserted = await ctx.store.write_batched(INSERT_JOB, new)
    if not inserted.repeated:
        await ctx.source_checkouts.check_out(job, storage_user(identity), inserted.id)


def _check_cluster(ctx: Context, identity: Identity, vc: str) -> None:
    if vc not in ctx.shares or not identity.access.may_use(vc):
        usable = ", ".join(name for name in ctx.shares if identity.access.may_use(name)) or "none"
        missing = f"There is no virtual cluster {vc}. " if vc not in ctx.shares else ""
        raise Forbidden(
            f"User {identity.username} is not allowed to do operation in {vc}.",
            hint=f"{missing}Yours to use: {usable}.",
        )
    if vc in ctx.virtual_clusters.stopped:
        raise Forbidden(
            f"The virtual cluster {vc} is stopped: it takes no jobs now.",
            hint="Choose another one, or ask an administrator to start it.",
        )


def _check_sources(ctx: Context, job: JobSpec) -> None:
    sources = job.additions.sources
    if sources is not None and not (ctx.sources / f"{sources.sha256}.tar").exists():
        raise NotFound(
            f"The sources {sources.sha256} of job {job.name} are not on this cluster.",
            code="NoSourcesError",
            hint="Upload them first, with PUT /api/v2/sources/<sha256>.",
        )


def _check_storages(ctx: Context, identity: Identity, job: JobSpec) -> None:
    """A job that names a storage must find it there, and its user must be allowed to use it."""
    named = storages_named(job.extras)
    if not named:
        return
    known = {storage.name: storage for storage in ctx.storages()}
    for name, _ in named:
        if name not in known:
            raise NotFound(
                f"Storage {name} is not found.",
                code="NoStorageError",
                hint=f"A job can have {', '.join(known) or 'none'}.",
            )
        if not known[name].open_to(identity.access):
            raise Forbidden(f"User {identity.username} is not allowed to access {name}.")


async def _check_conditions(ctx: Context, wanted: Wanted) -> None:
    """A job that waits for one that is not there would wait for ever."""
    if not wanted.after:
        return
    names = [condition.framework for condition in wanted.after]
    there = await ctx.store.read(lambda conn: jobs.states_of(conn, names))
    missing = [name for name in names if name not in there]
    if missing:
        raise no_job(", ".join(missing))


def no_job(framework: str) -> NotFound:
    return NotFound(f"Job {framework} is not found.", code=NO_JOB)
