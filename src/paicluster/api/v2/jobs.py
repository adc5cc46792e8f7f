"""Routes of jobs: submit, list, detail, stop, tag."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from sqlalchemy import Connection
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound, PaiError, StopNotPersisted
from openpaisdk.protocol import JobSpec
from paicluster.api.context import Context, authenticate, context
from paicluster.api.degraded import degraded_event, degraded_reason
from paicluster.api.middleware.audit import set_subject
from paicluster.api.permissions import check_may_see, check_owner_or_admin, visible_jobs
from paicluster.api.request_fields import fields_of
from paicluster.api.responses import (
    bool_param,
    form_or_json,
    int_param,
    json_response,
    read_body,
    warning_headers,
)
from paicluster.api.v2 import job_detail, serializers
from paicluster.auth.tokens import Identity
from paicluster.scheduler.resource_requests import decode
from paicluster.services.admission import job_text, no_job
from paicluster.store import jobs
from paicluster.store.job_list import DEFAULT_LIMIT, MAX_LIMIT, ListPage, with_causes, with_reasons
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow

_MAX_TAG_LENGTH = 255
# Largest page that is read on the event loop, and longest query string whose parse is cached.
_SHORT_PAGE = 50
_MAX_CACHED_QUERY = 256


async def submit(request: Request) -> Response:
    identity = await authenticate(request)
    body = await read_body(request)
    text = job_text(body)
    parsed = await context(request).job_parser.parse_v2(identity.username, text)
    job = parsed.job
    config = text if parsed.masked is None else parsed.masked
    warnings = await admit(request, identity, job, parsed.text, body, config)
    message = f"Update job {job.name} for user {identity.username} successfully."
    return json_response({"status": 202, "message": message}, 202, warning_headers(warnings))


async def admit(
    request: Request,
    identity: Identity,
    job: JobSpec,
    text: str,
    body: bytes,
    config: str,
    *,
    generation: Literal["v1", "v2"] = "v2",
) -> list[str]:
    """Admit a submitted job, and name it in the audit log; arguments and result are `Admission.admit`'s."""
    set_subject(request, f"{identity.username}~{job.name}")
    key = request.headers.get("idempotency-key")
    strict = bool_param(request.query_params, "strict")
    return await context(request).admission.admit(
        identity, job, text, body, config, idempotency_key=key, generation=generation, strict=strict
    )


async def list_jobs(request: Request) -> Response:
    identity = await authenticate(request)
    query = visible_jobs(identity, query_of(request))
    with_reason, with_cause = (_is_set(request, name) for name in ("reasons", "causes"))
    ctx = context(request)
    store = ctx.store

    def read(conn: Connection) -> ListPage:
        page = jobs.list_jobs(conn, query)
        if with_reason:
            page = with_reasons(conn, page, ctx.degraded_reason)
        return with_causes(conn, page) if with_cause else page

    # The pages that clients poll are read faster than the read could be passed to a thread.
    inline = query.is_first_page(_SHORT_PAGE) and not (with_reason or with_cause)
    page = store.read_inline(read) if inline else await store.read(read)
    return Response(page.body(), media_type="application/json")


def _is_set(request: Request, name: str) -> bool:
    """A query parameter that few requests have; it is parsed for these only."""
    return name.encode() in request.scope["query_string"] and bool_param(request.query_params, name)


def query_of(request: Request) -> jobs.JobQuery:
    """The listing query of a request."""
    query: bytes = request.scope["query_string"]
    return _parse_query_cached(query) if len(query) <= _MAX_CACHED_QUERY else _parse_query(query)


def _parse_query(query: bytes) -> jobs.JobQuery:
    params = QueryParams(query)
    get = params.get
    return jobs.JobQuery(
        username=_names(get("username")),
        vc=_names(get("vc")),
        state=_names(get("state")),
        keyword=get("keyword") or None,
        tags_contain=_names(get("tagsContain")),
        tags_not_contain=_names(get("tagsNotContain")),
        priorities=_names(get("jobPriority")),
        order=get("order", ""),
        offset=int_param(get("offset"), "offset", 0),
        limit=int_param(get("limit"), "limit", DEFAULT_LIMIT, MAX_LIMIT),
        with_total=bool_param(params, "withTotalCount"),
    )


# Clients poll the same pages.
_parse_query_cached = lru_cache(maxsize=512)(_parse_query)


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part) if value else ()


async def job_row(request: Request, identity: Identity) -> JobRow:
    """The job in the path; raises Forbidden unless the caller may see it."""
    row = await job_named(context(request), request.path_params["framework"])
    check_may_see(identity, row)
    return row


async def job_named(ctx: Context, framework: str) -> JobRow:
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None:
        raise no_job(framework)
    return row


async def detail(request: Request) -> Response:
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    attempt = request.path_params.get("attempt")
    ctx = context(request)
    degraded = ctx.degraded_reason(framework)
    # Job tokens may not see all jobs: for them the cache is bypassed, and the permission is checked.
    bypass = bool(degraded) or identity.job_id is not None
    body = None if bypass else ctx.detail_cache.get((framework, attempt))
    if body is None:
        version = ctx.detail_cache.version()
        found = await ctx.store.read(lambda conn: _detail(conn, identity, framework, attempt, degraded))
        if found is None:
            raise no_job(framework)
        job_id, body = found
        if not degraded:
            ctx.detail_cache.put((framework, attempt), job_id, body, version)
    return Response(body, media_type="application/json")


def _detail(
    conn: Connection, identity: Identity, framework: str, attempt_number: int | None, degraded: str
) -> tuple[int, bytes] | None:
    found = job_and_attempt(conn, framework, attempt_number)
    if found is None:
        return None
    row, attempt, number = found
    check_may_see(identity, row)
    tasks = jobs.task_details_of(conn, row.id, number)
    instances = None
    if 0 < len(tasks) < row.total_tasks:
        instances = {
            role.role: role.instances
            for role in decode(jobs.resource_request_of(conn, row.id)).resources.roles
        }
    reason = degraded_reason(row, degraded)
    return row.id, job_detail.job_detail(row, attempt, tasks, row.tags, reason, instances=instances)


def job_and_attempt(
    conn: Connection, framework: str, attempt_number: int | None = None
) -> tuple[JobRow, AttemptRow | None, int] | None:
    """A job, one of its attempts (by default the current one), and the attempt's number."""
    row = jobs.get_job(conn, framework)
    if row is None:
        return None
    number = row.attempt if attempt_number is None else attempt_number
    attempt = next((a for a in jobs.attempts_of(conn, row.id) if a.attempt == number), None)
    if attempt is None and attempt_number is not None and attempt_number != row.attempt:
        return None
    return row, attempt, number


async def config(request: Request) -> Response:
    identity = await authenticate(request)
    row = await job_row(request, identity)
    # As OpenPAI: JSON text with a YAML media type, which parsers of both accept.
    ctx = context(request)
    text = await config_as_json(ctx, identity, row, await spec_of(ctx, row))
    return Response(text, media_type="text/yaml")


async def spec_of(ctx: Context, row: JobRow) -> JobSpecRow:
    spec = await ctx.store.read(lambda conn: jobs.job_spec(conn, row.id))
    if spec is None:
        raise NotFound(f"Config of job {row.framework} is not found.", code="NoJobConfigError")
    return spec


async def config_as_json(ctx: Context, identity: Identity, row: JobRow, spec: JobSpecRow) -> str:
    """The job in protocol version 2: as submitted, or as converted from version 1."""
    for text in (spec.config, spec.job) if row.generation == "v2" else (spec.job,):
        if text.lstrip().startswith("{"):
            return text
    # An older server stored YAML.
    return await ctx.job_parser.convert(identity.username, "v2_as_json", spec.config)


async def execution_type(request: Request) -> Response:
    identity = await authenticate(request)
    value = await read_execution_type(request)
    row = await job_row(request, identity)
    await execute(context(request), identity, row, value)
    return json_response({"status": 202, "message": f"Execute job {row.framework} successfully."}, 202)


async def read_execution_type(request: Request) -> str:
    value = (await form_or_json(request)).get("value")
    if value not in ("START", "STOP"):
        raise InvalidParameters('"value" must be one of [START, STOP].')
    return str(value)


async def execute(ctx: Context, identity: Identity, row: JobRow, value: str) -> None:
    """START or STOP a job; raises Forbidden unless the caller may."""
    check_owner_or_admin(identity, row, "execute")
    # A stop is final: START of a stopped job gets the same response as in OpenPAI, and changes nothing.
    if value == "STOP" and row.sub_state != "Completed" and row.execution_type != "STOP":
        try:
            await ctx.store.write(lambda conn: jobs.stop(conn, row.id))
        except Exception as error:
            await _stop_unwritten(ctx, row, error)


async def _stop_unwritten(ctx: Context, row: JobRow, error: Exception) -> None:
    """Stop a job although the database cannot be written: a job that fills the disk must be stoppable."""
    try:
        await ctx.stop_now(row.id)
    except OSError:
        raise error from None
    cause = error.message if isinstance(error, PaiError) else f"an unexpected error ({error})."
    raise StopNotPersisted(
        f"Job {row.framework} is stopped, but the stop could not be written to the database yet: {cause}",
        hint=" ".join(
            filter(None, (getattr(error, "hint", ""), "Until then the job is shown in its old state."))
        ),
    ) from error


async def events(request: Request) -> Response:
    """Events of a job, latest first. ``offset`` and ``limit`` are our addition."""
    row = await job_row(request, await authenticate(request))
    get = request.query_params.get
    kind = get("type") or None
    offset = int_param(get("offset"), "offset", 0)
    limit = int_param(get("limit"), "limit", DEFAULT_LIMIT, MAX_LIMIT)
    ctx = context(request)
    reason = degraded_reason(row, ctx.degraded_reason(row.framework)) if kind in (None, "Warning") else ""
    current = [degraded_event(row, reason)] if reason else []
    total, rows = await ctx.store.read(
        lambda conn: jobs.page_of_events(conn, row.id, kind, max(0, offset - len(current)), limit)
    )
    if not offset:
        rows = [*current, *rows][:limit]
    total += len(current)
    return json_response({"totalCount": total, "data": [serializers.event(row, event) for event in rows]})


async def task_attempts(request: Request) -> Response:
    row = await job_row(request, await authenticate(request))
    p = request.path_params
    rows = await context(request).store.read(
        lambda conn: jobs.task_attempts_of(conn, row.id, p["attempt"], p["role"], p["index"])
    )
    if not rows:
        raise no_job(row.framework)
    return Response(job_detail.task_status(row, rows), media_type="application/json")


# -- tags ------------------------------------------------------------------------------------------


async def add_tag(request: Request) -> Response:
    identity = await authenticate(request)
    tag = await _tag(request)
    row = await job_row(request, identity)
    check_owner_or_admin(identity, row, "add tag to")
    await context(request).store.write(lambda conn: jobs.add_tag(conn, row.id, tag))
    return json_response({"status": 200, "message": f"Add tag {tag} for job {row.framework} successfully."})


async def delete_tag(request: Request) -> Response:
    identity = await authenticate(request)
    tag = await _tag(request)
    row = await job_row(request, identity)
    check_owner_or_admin(identity, row, "delete tag from")
    if not await context(request).store.write(lambda conn: jobs.remove_tag(conn, row.id, tag)):
        raise NotFound(f"Tag {tag} is not found for job {row.framework}.", code="NoTagError")
    return json_response(
        {"status": 200, "message": f"Delete tag {tag} from job {row.framework} successfully."}
    )


async def _tag(request: Request) -> str:
    fields = await fields_of(request)
    tag = fields.text("value", min_length=1)
    fields.end()
    if "," in tag or len(tag) > _MAX_TAG_LENGTH:
        raise InvalidParameters(f'"value" must have no comma and {_MAX_TAG_LENGTH} characters at most')
    return tag
