"""Routes of runs: parameters, states and metrics of all tasks of several jobs, and the names of these."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_may_see, visible_jobs
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Rate, Routes
from paicluster.api.v2.job_columns import column_names, jobs_of_page, run_config
from paicluster.api.v2.job_detail import TaskColumns, cause_if_failed, end_of_task
from paicluster.api.v2.jobs import admit_response, query_of
from paicluster.api.wire.jobs import JOB_FILTERS, JobColumns, JobRuns, MetricSummary, RunPage, TaskRun
from paicluster.api.wire.responses import Encoded, encode
from paicluster.auth.tokens import Identity
from paicluster.scheduler.resource_requests import decode
from paicluster.services.admission import no_job
from paicluster.services.event_metrics import has_event_metric
from paicluster.store import jobs, metric_rows
from paicluster.store.job_failures import MAX_CAUSE_CHARS
from paicluster.store.job_query import JobQuery
from paicluster.store.metric_rows import MetricValues
from paicluster.store.rows import JobRow, decode_tags
from paiprotocol.errors import InvalidParameters
from paiprotocol.jobs.completion import STOPPED_TO_COMPLETE
from paiprotocol.jobs.states import SubState, job_state
from paiprotocol.plain_numbers import plain_number

route = Routes("job")

MAX_JOBS = 200
# A response ends before the job that exceeds these; of the metrics of one job it has the first names.
MAX_TASKS = 10_000
MAX_METRICS = 200_000
# About what each takes in the response.
_JOB_BYTES = 1024
_TASK_BYTES = 128 + MAX_CAUSE_CHARS
_METRIC_BYTES = 128


class _Selection(NamedTuple):
    """The jobs of a response, the number of their metrics, and the offset of the next job."""

    rows: Sequence[JobRow]
    metrics: int
    next: int | None


_FILTERS = tuple(query for query in JOB_FILTERS if query.name != "withTotalCount")


@route(
    "GET /api/v2/job-columns",
    authority=JOBS,
    summary="Names of the parameters and metrics of jobs",
    query=_FILTERS,
    rate=Rate.LISTS,
)
async def columns(request: Request) -> JobColumns:
    """Names in the jobs of a page, at most 200: what a list can have as ``parameter`` and ``metric``."""
    identity = await authenticate(request)
    query = visible_jobs(identity, query_of(request))
    ctx = context(request)
    job_ids = await ctx.store.read(lambda conn: jobs_of_page(conn, query))
    await asyncio.gather(ctx.jobs.event_metrics.catch_up(job_ids), ctx.jobs.metrics.catch_up(job_ids))
    return await ctx.store.read(lambda conn: column_names(conn, job_ids))


@route(
    "GET /api/v2/runs",
    authority=JOBS,
    summary="Parameters, states and metrics of the tasks of jobs",
    query=(
        *_FILTERS,
        Query("jobs", description="Full names of jobs, separated by commas, instead of filters."),
        Query("metric", description="Only this metric; may be repeated."),
    ),
    errors=(404,),
    rate=Rate.LISTS,
    other_methods=405,
)
async def runs(request: Request) -> Encoded[RunPage]:
    """Runs of the jobs that the query selects, the newest first, or of those that it names, in that order."""
    identity = await authenticate(request)
    ctx = context(request)
    selected = await _selected_jobs(request, ctx, identity)
    metrics = tuple(dict.fromkeys(request.query_params.getlist("metric")))
    query = query_of(request)
    # Only the files of jobs that the response may have are read; it has fewer if they add many metrics.
    known = await ctx.store.read(lambda conn: _page(conn, selected, query))
    has_events = not metrics or has_event_metric(metrics)
    running = [row.id for row in known.rows if has_events and row.completed_ms is None]
    unread, _ = await asyncio.gather(
        ctx.jobs.metrics.catch_up([row.id for row in known.rows]), ctx.jobs.event_metrics.catch_up(running)
    )
    page = await ctx.store.read(lambda conn: _page(conn, selected, query))
    tasks = sum(row.total_tasks for row in page.rows)
    size = len(page.rows) * _JOB_BYTES + tasks * _TASK_BYTES
    await admit_response(request, identity, size + min(page.metrics, MAX_METRICS) * _METRIC_BYTES)

    def read(conn: Connection) -> bytes:
        return encode(
            RunPage([_job_runs(conn, row, metrics, row.id in unread) for row in page.rows], page.next)
        )

    return Encoded(await ctx.store.read(read))


async def _selected_jobs(request: Request, ctx: Context, identity: Identity) -> list[JobRow]:
    query = query_of(request)
    names = [name for name in request.query_params.get("jobs", "").split(",") if name]
    limit = min(query.limit, MAX_JOBS)

    def read_named(conn: Connection) -> list[JobRow]:
        rows = []
        for name in names[query.offset : query.offset + limit]:
            row = jobs.get_job(conn, name)
            if row is None:
                raise no_job(name)
            check_may_see(identity, row)
            rows.append(row)
        return rows

    if names:
        return await ctx.store.read(read_named)
    visible = replace(visible_jobs(identity, query), limit=limit, with_total=False)

    def read(conn: Connection) -> list[JobRow]:
        ids, _ = jobs.long_page(conn, visible)
        return [row for job_id in ids if (row := jobs.get_job_by_id(conn, job_id)) is not None]

    return await ctx.store.read(read)


def _page(conn: Connection, selected: Sequence[JobRow], query: JobQuery) -> _Selection:
    """As many jobs as one response has; the first one in any case."""
    tasks = metrics = count = 0
    for row in selected:
        tasks += row.total_tasks
        metrics += metric_rows.count_of(conn, row.id)
        if count and (tasks > MAX_TASKS or metrics > MAX_METRICS):
            break
        count += 1
    has_more = count < len(selected) or (count > 0 and count == min(query.limit, MAX_JOBS))
    return _Selection(selected[:count], metrics, query.offset + count if has_more else None)


def _job_runs(conn: Connection, row: JobRow, metrics: Collection[str], is_unread: bool) -> JobRuns:
    spec = jobs.job_spec(conn, row.id)
    config = run_config(spec.job if spec is not None else None)
    names, is_cut = _names_within_bound(conn, row.id, metrics)
    by_task: dict[tuple[int, int], dict[str, MetricValues]] = {}
    for order, index, name, values in metric_rows.metrics_of(conn, row.id, names):
        of_task = by_task.setdefault((order, index), {})
        # The earlier attempts of a task come first.
        of_task[name] = metric_rows.merged(of_task[name], values) if name in of_task else values
    return JobRuns(
        name=row.name,
        username=row.username,
        state=row.state,
        tags=decode_tags(row.tags),
        submission_time=row.submission_ms,
        launched_time=row.launched_ms,
        completed_time=row.completed_ms,
        is_array=config.is_array(row.total_roles),
        parameters=config.parameters,
        array=config.array,
        array_rows=config.array_rows,
        tasks=_tasks(conn, row, by_task),
        has_unread_metrics=is_unread,
        has_omitted_metrics=is_cut or metric_rows.has_omitted_names(conn, row.id),
    )


def _names_within_bound(
    conn: Connection, job_id: int, metrics: Collection[str]
) -> tuple[Collection[str], bool]:
    """Names to read, none for all, and whether there are more."""
    if len(metrics) > metric_rows.MAX_NAMES:
        raise InvalidParameters(f"A request may have {metric_rows.MAX_NAMES} metrics.")
    count = metric_rows.count_of(conn, job_id)
    if metrics or count <= MAX_METRICS:
        return metrics, False
    names = metric_rows.names_of(conn, job_id)
    kept = min(metric_rows.MAX_NAMES, max(1, MAX_METRICS * len(names) // count))
    return names[:kept], True


def _tasks(
    conn: Connection, row: JobRow, metrics: Mapping[tuple[int, int], Mapping[str, MetricValues]]
) -> list[TaskRun]:
    """The tasks in their order; those without an attempt wait, or were never started."""
    found: dict[tuple[str, int], TaskRun] = {}
    for columns in map(TaskColumns._make, jobs.task_details_of(conn, row.id, row.attempt)):
        is_retried = columns.sub_state == SubState.ATTEMPT_COMPLETED.value
        end, state = end_of_task(columns.exit_info), job_state(columns.sub_state, columns.exit_code)
        found[columns.role, columns.task_index] = TaskRun(
            columns.role,
            columns.task_index,
            state,
            columns.launched_ms,
            None if is_retried else columns.completed_ms,
            columns.exit_code if end.own_code is None else end.own_code,
            {
                name: _summary(values)
                for name, values in metrics.get((columns.role_order, columns.task_index), {}).items()
            },
            cause_if_failed(state, end),
        )
    if len(found) >= row.total_tasks:
        return list(found.values())
    state = (
        job_state(SubState.COMPLETED.value, STOPPED_TO_COMPLETE)
        if row.completed_ms is not None
        else "WAITING"
    )
    roles = decode(jobs.resource_request_of(conn, row.id)).resources.roles
    return [
        found.get((role.role, index)) or TaskRun(role.role, index, state, None, None, None, {})
        for role in roles
        for index in range(role.instances)
    ]


def _summary(values: MetricValues) -> MetricSummary:
    return MetricSummary(
        values.times,
        plain_number(math.nan if values.last is None else values.last),
        values.last_step,
        None if values.min is None else plain_number(values.min),
        values.min_step,
        None if values.max is None else plain_number(values.max),
        values.max_step,
    )
