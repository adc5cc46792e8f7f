"""Routes of jobs: submit, list, detail, stop, tag."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from functools import lru_cache, partial
from typing import Literal
from urllib.parse import urlsplit

from sqlalchemy import Connection
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.jobs.degraded import degraded_event, degraded_reason
from paicluster.api.middleware.audit import set_subject
from paicluster.api.middleware.response_budget import PIECE_BYTES
from paicluster.api.requests.authentication import authenticate, caller
from paicluster.api.requests.own_url import own_url
from paicluster.api.requests.permissions import check_may_see, check_owner_or_admin, visible_jobs
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import PAGE, YAML, Query, Rate, Routes, Text
from paicluster.api.v2 import job_detail, serializers
from paicluster.api.v2.job_columns import COLUMN_BYTES, COLUMNS, UnreadJobs, columns_of, with_columns
from paicluster.api.v2.job_order import key_of_order, page_of_order, read_order, value_order
from paicluster.api.v2.job_summaries import MAX_CAUSES, page_body, with_causes, with_reasons
from paicluster.api.wire.base import MessageWithStatus
from paicluster.api.wire.jobs import (
    EXECUTION_TYPE,
    JOB_FILE,
    JOB_FILTERS,
    STRICT,
    EventPage,
    ExecutionTypeBody,
    JobDetail,
    JobPage,
    JobSummary,
    Tag,
    TaskStatus,
)
from paicluster.api.wire.query_parameters import bool_param, int_param
from paicluster.api.wire.request_body import read_body
from paicluster.api.wire.responses import Encoded, Reply, encode, warning_headers
from paicluster.auth.tokens import Identity
from paicluster.scheduler.resource_requests import decode
from paicluster.services.admission import job_text, no_job
from paicluster.services.event_metrics import has_event_metric
from paicluster.store import jobs
from paicluster.store.job_list import DEFAULT_LIMIT, MAX_LIMIT, ListPage, reasons_of
from paicluster.store.rows import AttemptRow, JobRow, JobSpecRow
from paiprotocol.errors import InvalidParameters, NotFound, PaiError, StopNotPersisted
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.extras import tag_problem
from paiprotocol.jobs.limits import MAX_TASKS

route = Routes("job")

# Largest page that is read on the event loop, and longest query string whose parse is cached.
_SHORT_PAGE = 50
_MAX_CACHED_QUERY = 256
# Longer pages are read in parts, as the client reads them.
_LONG_PAGE = 5000
_JOBS_PER_PART = 1000
# About what a job takes in a list, and a failed task in a detail.
_SUMMARY_BYTES = 512
_TASK_BYTES = 1100
_FAILED = b'"state":"FAILED"'
# Where the jobs are in a list without any.
_CUT = b"\0"
_NOTHING_UNREAD = UnreadJobs()


@route(
    "POST /api/v2/jobs",
    authority=JOBS,
    summary="Submit a job",
    query=(STRICT,),
    body=JOB_FILE,
    status=202,
    errors=(404, 409, 422, 507),
    rate=Rate.SUBMISSIONS,
)
async def submit(request: Request) -> Reply[MessageWithStatus]:
    identity = await authenticate(request)
    body = await read_body(request)
    text = job_text(body)
    parsed = await context(request).jobs.parser.parse_v2(identity.username, text)
    job = parsed.job
    config = text if parsed.masked is None else parsed.masked
    warnings = await admit(request, identity, job, parsed.text, body, config)
    message = f"Update job {job.name} for user {identity.username} successfully."
    return Reply(MessageWithStatus(202, message), headers=warning_headers(warnings))


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
    strict = _is_set(request, "strict")
    ctx = context(request)
    return await ctx.jobs.admission.admit(
        identity,
        job,
        text,
        body,
        config,
        idempotency_key=key,
        generation=generation,
        strict=strict,
        hosts=lambda: frozenset(
            urlsplit(url).netloc for url in (own_url(request), ctx.files.own.external_url)
        ),
    )


@route(
    "GET /api/v2/jobs",
    authority=JOBS,
    summary="List jobs",
    query=(
        *JOB_FILTERS,
        Query("reasons", bool, description="Our addition: with the pending reason of waiting jobs."),
        Query(
            "causes",
            bool,
            description="Our addition: with the cause of the first 1000 failed jobs, as their reason.",
        ),
        *COLUMNS,
    ),
    rate=Rate.LISTS,
)
async def list_jobs(request: Request) -> Encoded[list[JobSummary] | JobPage]:
    identity = await authenticate(request)
    query = visible_jobs(identity, query_of(request))
    with_reason, with_cause = (_is_set(request, name) for name in ("reasons", "causes"))
    columns = columns_of(request, query)
    order = value_order(query.order)
    ctx = context(request)
    store = ctx.store
    in_order: Sequence[int] | None = None
    if order is not None:
        jobs.check_page(query)
        key = key_of_order(query)
        # Jobs that were sorted by this metric of tasks that run.
        running: set[int] = set()
        in_order = await ctx.jobs.order_cache.ids_of(
            key, lambda: store.read(lambda conn: read_order(conn, key, order, on_running=running.update))
        )
        _look_at(ctx, running, (order.name,))
    if query.limit > _LONG_PAGE:
        jobs.check_page(query)
        await admit_response(request, identity, 2 * _JOBS_PER_PART * _SUMMARY_BYTES)
        ids, total = await store.read(lambda conn: _ids_of_page(conn, query, in_order))
        return await _long_list(ctx, ids, total, with_reason, with_cause)
    if query.limit > _SHORT_PAGE or columns:
        size = _SUMMARY_BYTES + len(columns) * COLUMN_BYTES
        await admit_response(request, identity, min(query.limit, MAX_LIMIT) * size)

    def explained(conn: Connection, page: ListPage) -> ListPage:
        if with_reason:
            page = with_reasons(conn, page, ctx.controller.degraded_reason)
        return with_causes(conn, page) if with_cause else page

    def read(conn: Connection) -> ListPage:
        return explained(conn, jobs.list_jobs(conn, query))

    def read_with_columns(conn: Connection) -> tuple[ListPage, UnreadJobs]:
        ids, total = _ids_of_page(conn, query, in_order)
        page = explained(conn, ListPage(jobs.part_of_page(conn, ids), total))
        if not columns:
            return page, _NOTHING_UNREAD
        return with_columns(conn, page, ids, columns, ctx.jobs.column_cache)

    if columns or order is not None:
        page, unread = await store.read(read_with_columns)
        _look_at(ctx, unread.running, columns.metrics)
        if unread.missed:
            await ctx.jobs.metrics.catch_up(sorted(unread.missed))
            page, _ = await store.read(read_with_columns)
        return Encoded(page_body(page))
    # The pages that clients poll are read faster than the read could be passed to a thread.
    inline = query.is_first_page(_SHORT_PAGE) and not (with_reason or with_cause)
    page = store.read_inline(read) if inline else await store.read(read)
    return Encoded(page_body(page))


async def admit_page(request: Request, identity: Identity, query: jobs.JobQuery) -> None:
    """Wait until the caller has space for a page."""
    await admit_response(request, identity, min(query.limit, MAX_LIMIT) * _SUMMARY_BYTES)


async def admit_response(request: Request, identity: Identity, size: int) -> None:
    """Wait until the caller has space for a response of about this size."""
    if size > PIECE_BYTES:
        budget = context(request).server.policies.response_budget
        await budget.admit(request.scope, identity.username, size)


def _look_at(ctx: Context, running: Collection[int], metrics: Collection[str]) -> None:
    """Read metrics of event files of these jobs; all others of running tasks are read all the time."""
    if running and has_event_metric(metrics):
        ctx.jobs.event_metrics.request(running)


def _ids_of_page(
    conn: Connection, query: jobs.JobQuery, in_order: Sequence[int] | None
) -> tuple[Sequence[int], int | None]:
    """``in_order``: the ids of all jobs of the query, for an order that the database does not have."""
    return jobs.long_page(conn, query) if in_order is None else page_of_order(conn, query, in_order)


async def _long_list(
    ctx: Context, ids: Sequence[int], total: int | None, with_reason: bool, with_cause: bool
) -> Encoded[list[JobSummary] | JobPage]:
    """Which jobs, and their order, was read at once; the jobs themselves, when the client has read those
    before. Where they are not that many, the response is whole, as that of a shorter page.
    """

    def read(conn: Connection, start: int, max_causes: int) -> tuple[bytes, int]:
        page = ListPage(jobs.part_of_page(conn, ids[start : start + _JOBS_PER_PART]), None)
        failed = page.summaries.count(_FAILED)
        if with_reason:
            page = with_reasons(conn, page, ctx.controller.degraded_reason)
        return with_causes(conn, page, max_causes).summaries, max(0, max_causes - failed)

    async def parts() -> AsyncIterator[bytes]:
        causes_left = MAX_CAUSES if with_cause else 0
        separator = b""
        for start in range(0, len(ids), _JOBS_PER_PART):
            part, causes_left = await ctx.store.read(partial(read, start=start, max_causes=causes_left))
            if part:
                yield separator + part
                separator = b","

    if len(ids) <= _LONG_PAGE:
        return Encoded(page_body(ListPage(b"".join([part async for part in parts()]), total)))
    head, end = page_body(ListPage(_CUT, total)).split(_CUT)

    async def rest() -> AsyncIterator[bytes]:
        async for part in parts():
            yield part
        yield end

    return Encoded(head, rest())


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


@route(
    "GET /api/v2/jobs/{framework}",
    "GET /api/v2/jobs/{framework}/attempts/{attempt:count}",
    authority=JOBS,
    summary="Get a job and one of its attempts",
)
async def detail(request: Request) -> Encoded[JobDetail]:
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    attempt = request.path_params.get("attempt")
    ctx = context(request)
    degraded = ctx.controller.degraded_reason(framework)
    cache = ctx.jobs.detail_cache
    key = framework, attempt
    body = None if degraded else cache.get(key)
    if body is not None:
        await _check_may_see_cached(ctx, identity, framework)
        return Encoded(body)
    version = cache.version()
    small = PIECE_BYTES // _TASK_BYTES
    detail = await ctx.store.read(lambda conn: _detail(conn, identity, framework, attempt, degraded, small))
    if isinstance(detail, int):
        await admit_response(request, identity, detail * _TASK_BYTES)
        # Another request may have rendered it meanwhile.
        body = None if degraded else cache.get(key)
        if body is not None:
            return Encoded(body)
        version = cache.version()
        detail = await ctx.store.read(lambda conn: _detail(conn, identity, framework, attempt, degraded))
    if detail is None or isinstance(detail, int):
        raise no_job(framework)
    job_id, body = detail
    if not degraded:
        cache.put(key, job_id, body, version)
    return Encoded(body)


async def _check_may_see_cached(ctx: Context, identity: Identity, framework: str) -> None:
    if identity.job_id is not None:  # others see all jobs
        check_may_see(identity, await job_named(ctx, framework))


def _detail(
    conn: Connection,
    identity: Identity,
    framework: str,
    attempt_number: int | None,
    degraded: str,
    max_tasks: int = MAX_TASKS,
) -> tuple[int, bytes] | int | None:
    """The job's id and its detail; of a job with more than ``max_tasks`` only their number."""
    job_attempt = job_and_attempt(conn, framework, attempt_number)
    if job_attempt is None:
        return None
    row, attempt, number = job_attempt
    check_may_see(identity, row)
    if row.total_tasks > max_tasks:
        return row.total_tasks
    tasks = jobs.task_details_of(conn, row.id, number)
    instances = None
    if 0 < len(tasks) < row.total_tasks:
        instances = {
            role.role: role.instances
            for role in decode(jobs.resource_request_of(conn, row.id)).resources.roles
        }
    reason = degraded_reason(row, degraded)
    if not reason and row.state == "WAITING":
        reason = reasons_of(conn, [row.framework]).get(row.framework, "")
    return row.id, encode(job_detail.job_detail(row, attempt, tasks, reason, instances=instances))


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


@route(
    "GET /api/v2/jobs/{framework}/config",
    authority=JOBS,
    summary="Get the job as submitted, secrets masked",
    query=(Query("submitted", bool, description="The text that was posted, with its comments; else JSON."),),
    returns={200: Text(YAML)},
)
async def config(request: Request) -> Response:
    identity = await authenticate(request)
    row = await job_row(request, identity)
    ctx = context(request)
    spec = await spec_of(ctx, row)
    if bool_param(request.query_params, "submitted"):
        return Response(spec.config, media_type="text/yaml")
    # As OpenPAI: JSON text with a YAML media type, which parsers of both accept.
    return Response(await config_as_json(ctx, identity, row, spec), media_type="text/yaml")


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
    return await ctx.jobs.parser.convert(identity.username, "v2_as_json", spec.config)


@route(
    "PUT /api/v2/jobs/{framework}/executionType",
    authority=JOBS,
    summary="Stop a job",
    body=EXECUTION_TYPE,
    status=202,
)
async def execution_type(request: Request, wanted: ExecutionTypeBody) -> MessageWithStatus:
    identity = caller(request)
    row = await job_row(request, identity)
    await execute(context(request), identity, row, wanted.value)
    return MessageWithStatus(202, f"Execute job {row.framework} successfully.")


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
        await ctx.controller.stop_without_store(row.id)
    except OSError:
        raise error from None
    cause = error.message if isinstance(error, PaiError) else f"an unexpected error ({error})."
    raise StopNotPersisted(
        f"Job {row.framework} is stopped, but the stop could not be written to the database yet: {cause}",
        hint=" ".join(
            filter(None, (getattr(error, "hint", ""), "Until then the job is shown in its old state."))
        ),
    ) from error


@route(
    "GET /api/v2/jobs/{framework}/events",
    authority=JOBS,
    summary="List the events of a job",
    query=(Query("type", description="Normal or Warning."), *PAGE),
)
async def events(request: Request) -> EventPage:
    """Events of a job, latest first. ``offset`` and ``limit`` are our addition."""
    row = await job_row(request, await authenticate(request))
    get = request.query_params.get
    kind = get("type") or None
    offset = int_param(get("offset"), "offset", 0)
    limit = int_param(get("limit"), "limit", DEFAULT_LIMIT, MAX_LIMIT)
    ctx = context(request)
    reason = (
        degraded_reason(row, ctx.controller.degraded_reason(row.framework))
        if kind in (None, "Warning")
        else ""
    )
    current = [degraded_event(row, reason)] if reason else []
    total, rows = await ctx.store.read(
        lambda conn: jobs.page_of_events(conn, row.id, kind, max(0, offset - len(current)), limit)
    )
    if not offset:
        rows = [*current, *rows][:limit]
    total += len(current)
    return EventPage(total, [serializers.event(row, event) for event in rows])


@route(
    "GET /api/v2/jobs/{framework}/attempts/{attempt:count}/taskRoles/{role}/taskIndex/{index:count}/attempts",
    authority=JOBS,
    summary="List the attempts of a task",
)
async def task_attempts(request: Request) -> TaskStatus:
    row = await job_row(request, await authenticate(request))
    p = request.path_params
    rows = await context(request).store.read(
        lambda conn: jobs.task_attempts_of(conn, row.id, p["attempt"], p["role"], p["index"])
    )
    if not rows:
        raise no_job(row.framework)
    return job_detail.task_status(row, rows)


# -- tags ------------------------------------------------------------------------------------------


@route(
    "PUT /api/v2/jobs/{framework}/tag",
    authority=JOBS,
    summary="Tag a job",
)
async def add_tag(request: Request, tag: Tag) -> MessageWithStatus:
    value = _checked(tag)
    identity = caller(request)
    row = await job_row(request, identity)
    check_owner_or_admin(identity, row, "add tag to")
    await context(request).store.write(lambda conn: jobs.add_tag(conn, row.id, value))
    return MessageWithStatus(200, f"Add tag {value} for job {row.framework} successfully.")


@route(
    "DELETE /api/v2/jobs/{framework}/tag",
    authority=JOBS,
    summary="Remove a tag from a job",
)
async def delete_tag(request: Request, tag: Tag) -> MessageWithStatus:
    value = _checked(tag)
    identity = caller(request)
    row = await job_row(request, identity)
    check_owner_or_admin(identity, row, "delete tag from")
    if not await context(request).store.write(lambda conn: jobs.remove_tag(conn, row.id, value)):
        raise NotFound(f"Tag {value} is not found for job {row.framework}.", code="NoTagError")
    return MessageWithStatus(200, f"Delete tag {value} from job {row.framework} successfully.")


def _checked(tag: Tag) -> str:
    if problem := tag_problem(tag.value):
        raise InvalidParameters(f'"value" cannot be a tag: {problem}.')
    return tag.value
