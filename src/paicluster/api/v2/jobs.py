"""Jobs: submit, list, look at, stop."""

from __future__ import annotations

import hashlib
import json
import time

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters, NotFound
from openpaisdk.protocol import Job, mask_secrets, read_job
from openpaisdk.protocol.states import framework_name
from paicluster.api.answers import answer, body_of, encode, form_or_json, whole_number
from paicluster.api.context import Context, context, identify
from paicluster.api.v2 import shapes
from paicluster.auth.tokens import Identity
from paicluster.scheduler.needs import Request as Wanted
from paicluster.scheduler.needs import request_of, to_text
from paicluster.store import jobs
from paicluster.store.listing import DEFAULT_LIMIT, LARGEST_LIMIT
from paicluster.store.rows import JobRow
from paicluster.store.submissions import INSERT_JOB, NewJob

_KEY_LENGTH = 255
MOST_TASKS = 10_000


async def submit(request: Request) -> Response:
    identity = await identify(request)
    ctx = context(request)
    body = await body_of(request)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidParameters(f"The job must be UTF-8 text; its byte {error.start} is not.") from None
    job = read_job(text)
    _check_sources(ctx, job)
    if job.virtual_cluster not in ctx.shares:
        raise Forbidden(
            f"User {identity.username} is not allowed to do operation in {job.virtual_cluster}.",
            hint=f"There is {', '.join(ctx.shares)}.",
        )
    if job.total_tasks > MOST_TASKS:
        raise InvalidParameters(f"A job may have {MOST_TASKS} tasks at most; this one has {job.total_tasks}.")
    wanted = request_of(job, identity.username)
    await _check_conditions(ctx, wanted)
    framework = framework_name(identity.username, job.name)
    sealed = None
    config = job_text = text
    if job.secrets:
        config = mask_secrets(text)
        job_text = json.dumps({**job.raw, "secrets": "******"}, ensure_ascii=False)
        sealed = ctx.sealer.seal(json.dumps(dict(job.secrets)).encode(), framework)
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _KEY_LENGTH:
        raise InvalidParameters(f"An Idempotency-Key has 1 to {_KEY_LENGTH} characters.")
    await ctx.store.write_batched(
        INSERT_JOB,
        NewJob(
            username=identity.username,
            name=job.name,
            vc=job.virtual_cluster,
            config=config,
            job=job_text,
            submission_ms=int(time.time() * 1000),
            total_gpus=job.total_gpus,
            total_tasks=job.total_tasks,
            total_roles=len(job.task_roles),
            priority=job.priority,
            need=to_text(wanted),
            sealed=sealed,
            idempotency_key=key,
            body_sha256=hashlib.sha256(body).hexdigest() if key is not None else "",
        ),
    )
    message = f"Update job {job.name} for user {identity.username} successfully."
    return answer({"status": 202, "message": message}, 202)


def _check_sources(ctx: Context, job: Job) -> None:
    sources = job.additions.sources
    if sources is not None and not (ctx.sources / f"{sources.sha256}.tar").exists():
        raise NotFound(
            f"The sources {sources.sha256} of job {job.name} are not on this cluster.",
            code="NoSourcesError",
            hint="Upload them first, with PUT /api/v2/sources/<sha256>.",
        )


async def _check_conditions(ctx: Context, wanted: Wanted) -> None:
    """A job that waits for one that is not there would wait for ever."""
    if not wanted.after:
        return
    names = [condition.framework for condition in wanted.after]
    there = await ctx.store.read(lambda conn: jobs.states_of(conn, names))
    missing = [name for name in names if name not in there]
    if missing:
        raise no_job(", ".join(missing))


async def list_jobs(request: Request) -> Response:
    await identify(request)
    get = request.query_params.get
    query = jobs.JobQuery(
        username=_names(get("username")),
        vc=_names(get("vc")),
        state=_names(get("state")),
        keyword=get("keyword") or None,
        tags_contain=_names(get("tagsContain")),
        tags_not_contain=_names(get("tagsNotContain")),
        priorities=_names(get("jobPriority")),
        order=get("order", ""),
        offset=whole_number(get("offset"), "offset", 0),
        limit=whole_number(get("limit"), "limit", DEFAULT_LIMIT, LARGEST_LIMIT),
        with_total=get("withTotalCount", "").lower() == "true",
    )
    page = await context(request).store.read(lambda conn: jobs.list_jobs(conn, query))
    return Response(page.body(), media_type="application/json")


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part) if value else ()


async def job_row(request: Request) -> JobRow:
    framework = request.path_params["framework"]
    row = await context(request).store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None:
        raise no_job(framework)
    return row


def no_job(framework: str) -> NotFound:
    return NotFound(f"Job {framework} is not found.")


async def detail(request: Request) -> Response:
    await identify(request)
    framework = request.path_params["framework"]
    wanted = request.path_params.get("attempt")

    def read(conn: Connection) -> bytes | None:
        row = jobs.get_job(conn, framework)
        if row is None:
            return None
        number = row.attempt if wanted is None else wanted
        attempt = next((a for a in jobs.attempts_of(conn, row.id) if a.attempt == number), None)
        if attempt is None and wanted is not None and wanted != row.attempt:
            return None
        tasks = jobs.tasks_of(conn, row.id, number)
        return encode(shapes.job_detail(row, attempt, tasks, jobs.tags_of(conn, row.id)))

    body = await context(request).store.read(read)
    if body is None:
        raise no_job(framework)
    return Response(body, media_type="application/json")


async def config(request: Request) -> Response:
    await identify(request)
    row = await job_row(request)
    spec = await context(request).store.read(lambda conn: jobs.job_spec(conn, row.id))
    if spec is None:
        raise NotFound(f"Config of job {row.framework} is not found.", code="NoJobConfigError")
    # As the original: JSON text under a YAML type, so that both kinds of readers are content.
    text = spec.config
    if not text.lstrip().startswith("{"):
        text = json.dumps(read_job(spec.config, stored=True).raw, ensure_ascii=False)
    return Response(text, media_type="text/yaml")


async def execution_type(request: Request) -> Response:
    identity = await identify(request)
    body = await form_or_json(request)
    value = body.get("value")
    if value not in ("START", "STOP"):
        raise InvalidParameters('"value" must be one of [START, STOP].')
    row = await job_row(request)
    _owner_or_admin(identity, row)
    # A stop holds: starting a stopped job again is answered as the original does, and changes nothing.
    if value == "STOP" and row.sub_state != "Completed" and row.execution_type != "STOP":
        await context(request).store.write(lambda conn: jobs.set_execution_type(conn, row.id, "STOP"))
    return answer({"status": 202, "message": f"Execute job {row.framework} successfully."}, 202)


def _owner_or_admin(identity: Identity, row: JobRow) -> None:
    if identity.username != row.username and not identity.admin:
        raise Forbidden(f"User {identity.username} is not allowed to execute job {row.framework}.")


async def events(request: Request) -> Response:
    await identify(request)
    row = await job_row(request)
    kind = request.query_params.get("type")
    rows = await context(request).store.read(lambda conn: jobs.events_of(conn, row.id, kind))
    return answer({"totalCount": len(rows), "data": [shapes.event(row, event) for event in rows]})


async def task_attempts(request: Request) -> Response:
    await identify(request)
    row = await job_row(request)
    p = request.path_params
    rows = await context(request).store.read(
        lambda conn: jobs.task_attempts_of(conn, row.id, p["attempt"], p["role"], p["index"])
    )
    if not rows:
        raise no_job(row.framework)
    return answer(shapes.task_status(row, rows))
