"""Jobs: submit, list, look at, stop, tag."""

from __future__ import annotations

import json
from functools import lru_cache

from sqlalchemy import Connection
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound, PaiError, StopNotPersisted
from openpaisdk.protocol import read_job
from paicluster.api.context import Context, authenticate, context
from paicluster.api.degraded import degraded_event, degraded_reason
from paicluster.api.permissions import may_see, owner_or_admin
from paicluster.api.request_fields import fields_of
from paicluster.api.responses import form_or_json, int_param, json_response, read_body
from paicluster.api.v2 import job_detail, serializers
from paicluster.auth.tokens import Identity
from paicluster.scheduler.resource_requests import decode
from paicluster.services.admission import admit, job_text, no_job
from paicluster.store import jobs
from paicluster.store.job_listing import DEFAULT_LIMIT, LARGEST_LIMIT, ListPage
from paicluster.store.reasons import with_reasons
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow

_LONGEST_TAG = 255


_SHORT_PAGE = 50
_SHORT_QUERY = 256


async def submit(request: Request) -> Response:
    identity = await authenticate(request)
    body = await read_body(request)
    text = job_text(body)
    job = read_job(text)
    await admit(request, identity, job, text, body)
    message = f"Update job {job.name} for user {identity.username} successfully."
    return json_response({"status": 202, "message": message}, 202)


async def list_jobs(request: Request) -> Response:
    await authenticate(request)
    query = query_of(request)
    told = (
        b"reasons" in request.scope["query_string"]
        and request.query_params.get("reasons", "").lower() == "true"
    )
    ctx = context(request)
    store = ctx.store

    def look(conn: Connection) -> ListPage:
        page = jobs.list_jobs(conn, query)
        return with_reasons(conn, page, ctx.degraded_reason) if told else page

    # What clients ask for again and again is read sooner than it could be handed to a thread.
    at_once = query.is_first_page(_SHORT_PAGE) and not told
    page = store.read_inline(look) if at_once else await store.read(look)
    return Response(page.body(), media_type="application/json")


def query_of(request: Request) -> jobs.JobQuery:
    """Which jobs a request asks for."""
    asked: bytes = request.scope["query_string"]
    return _remembered(asked) if len(asked) <= _SHORT_QUERY else _read_query(asked)


def _read_query(asked: bytes) -> jobs.JobQuery:
    get = QueryParams(asked).get
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
        limit=int_param(get("limit"), "limit", DEFAULT_LIMIT, LARGEST_LIMIT),
        with_total=get("withTotalCount", "").lower() == "true",
    )


# Clients ask for the same pages again and again.
_remembered = lru_cache(maxsize=512)(_read_query)


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part) if value else ()


async def job_row(request: Request, identity: Identity) -> JobRow:
    """The job that the address names, for one who may see it."""
    row = await job_named(context(request), request.path_params["framework"])
    may_see(identity, row)
    return row


async def job_named(ctx: Context, framework: str) -> JobRow:
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None:
        raise no_job(framework)
    return row


async def detail(request: Request) -> Response:
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    wanted = request.path_params.get("attempt")
    ctx = context(request)
    trouble = ctx.degraded_reason(framework)
    # A job may not see all jobs: for it each is looked at anew.
    anew = bool(trouble) or identity.job_id is not None
    body = None if anew else ctx.detail_cache.get((framework, wanted))
    if body is None:
        since = ctx.detail_cache.moment()
        found = await ctx.store.read(lambda conn: _detail(conn, identity, framework, wanted, trouble))
        if found is None:
            raise no_job(framework)
        job_id, body = found
        if not trouble:
            ctx.detail_cache.keep((framework, wanted), job_id, body, since)
    return Response(body, media_type="application/json")


def _detail(
    conn: Connection, identity: Identity, framework: str, wanted: int | None, trouble: str
) -> tuple[int, bytes] | None:
    found = job_and_attempt(conn, framework, wanted)
    if found is None:
        return None
    row, attempt, number = found
    may_see(identity, row)
    tasks = jobs.shown_tasks_of(conn, row.id, number)
    instances = None
    if 0 < len(tasks) < row.total_tasks:
        instances = {role.role: role.instances for role in decode(jobs.need_of(conn, row.id)).need.roles}
    why = degraded_reason(row, trouble)
    return row.id, job_detail.job_detail(row, attempt, tasks, row.tags, why, instances=instances)


def job_and_attempt(
    conn: Connection, framework: str, wanted: int | None = None
) -> tuple[JobRow, AttemptRow | None, int] | None:
    """A job with one attempt of it, the current one if none is named, and its number."""
    row = jobs.get_job(conn, framework)
    if row is None:
        return None
    number = row.attempt if wanted is None else wanted
    attempt = next((a for a in jobs.attempts_of(conn, row.id) if a.attempt == number), None)
    if attempt is None and wanted is not None and wanted != row.attempt:
        return None
    return row, attempt, number


async def config(request: Request) -> Response:
    row = await job_row(request, await authenticate(request))
    # As the original: JSON text under a YAML type, so that both kinds of readers are content.
    return Response(config_as_json(row, await spec_of(context(request), row)), media_type="text/yaml")


async def spec_of(ctx: Context, row: JobRow) -> JobSpecRow:
    spec = await ctx.store.read(lambda conn: jobs.job_spec(conn, row.id))
    if spec is None:
        raise NotFound(f"Config of job {row.framework} is not found.", code="NoJobConfigError")
    return spec


def config_as_json(row: JobRow, spec: JobSpecRow) -> str:
    """The job in version 2: as submitted, or as what it was converted to."""
    text = spec.config if row.generation == "v2" else spec.job
    if text.lstrip().startswith("{"):
        return text
    return json.dumps(read_job(text, stored=True).raw, ensure_ascii=False)


async def execution_type(request: Request) -> Response:
    identity = await authenticate(request)
    value = await execution_wanted(request)
    row = await job_row(request, identity)
    await execute(context(request), identity, row, value)
    return json_response({"status": 202, "message": f"Execute job {row.framework} successfully."}, 202)


async def execution_wanted(request: Request) -> str:
    value = (await form_or_json(request)).get("value")
    if value not in ("START", "STOP"):
        raise InvalidParameters('"value" must be one of [START, STOP].')
    return str(value)


async def execute(ctx: Context, identity: Identity, row: JobRow, value: str) -> None:
    """START or STOP a job, for those who may."""
    owner_or_admin(identity, row, "execute")
    # A stop holds: starting a stopped job again is answered as the original does, and changes nothing.
    if value == "STOP" and row.sub_state != "Completed" and row.execution_type != "STOP":
        try:
            await ctx.store.write(lambda conn: jobs.stop(conn, row.id))
        except Exception as error:
            await _stop_unwritten(ctx, row, error)


async def _stop_unwritten(ctx: Context, row: JobRow, error: Exception) -> None:
    """What fills the disk must end also where nothing can be written any more."""
    try:
        await ctx.stop_now(row.id)
    except OSError:
        raise error from None
    cause = error.message if isinstance(error, PaiError) else f"an unexpected error ({error})."
    raise StopNotPersisted(
        f"The job {row.framework} is stopped, but that could not be written down yet: {cause}",
        hint=" ".join(filter(None, (getattr(error, "hint", ""), "It is shown as it was until then."))),
    ) from error


async def events(request: Request) -> Response:
    """What happened to a job, latest first. ``offset`` and ``limit`` are ours."""
    row = await job_row(request, await authenticate(request))
    get = request.query_params.get
    kind = get("type") or None
    offset = int_param(get("offset"), "offset", 0)
    limit = int_param(get("limit"), "limit", DEFAULT_LIMIT, LARGEST_LIMIT)
    ctx = context(request)
    trouble = degraded_reason(row, ctx.degraded_reason(row.framework)) if kind in (None, "Warning") else ""
    now = [degraded_event(row, trouble)] if trouble else []
    total, rows = await ctx.store.read(
        lambda conn: jobs.page_of_events(conn, row.id, kind, max(0, offset - len(now)), limit)
    )
    if not offset:
        rows = [*now, *rows][:limit]
    total += len(now)
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


async def ssh(request: Request) -> Response:
    """Version 2 never had it: what it tells is in a task's `containerIp` and `containerPorts`."""
    row = await job_row(request, await authenticate(request))
    raise no_ssh(row)


def no_ssh(row: JobRow) -> NotFound:
    return NotFound(f"SSH info of job {row.framework} is not found.", code="NoJobSshInfoError")


# -- tags ------------------------------------------------------------------------------------------


async def add_tag(request: Request) -> Response:
    identity = await authenticate(request)
    tag = await _tag(request)
    row = await job_row(request, identity)
    owner_or_admin(identity, row, "add tag to")
    await context(request).store.write(lambda conn: jobs.add_tag(conn, row.id, tag))
    return json_response({"status": 200, "message": f"Add tag {tag} for job {row.framework} successfully."})


async def delete_tag(request: Request) -> Response:
    identity = await authenticate(request)
    tag = await _tag(request)
    row = await job_row(request, identity)
    owner_or_admin(identity, row, "delete tag from")
    if not await context(request).store.write(lambda conn: jobs.remove_tag(conn, row.id, tag)):
        raise NotFound(f"Tag {tag} is not found for job {row.framework}.", code="NoTagError")
    return json_response(
        {"status": 200, "message": f"Delete tag {tag} from job {row.framework} successfully."}
    )


async def _tag(request: Request) -> str:
    given = await fields_of(request)
    tag = given.text("value", least=1)
    given.end()
    if "," in tag or len(tag) > _LONGEST_TAG:
        raise InvalidParameters(f'"value" must have no comma and {_LONGEST_TAG} characters at most')
    return tag
