"""Routes of a job's tasks: workers, logs, and the use of the caller's quota."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cluster_objects import pending_pod, pod, pod_name, resource_quota
from paicluster.api.paddlecloud.job_translation import MASTER, PSERVER
from paicluster.api.paddlecloud.jobs import find_job, listed_jobs
from paicluster.api.paddlecloud.replies import replying, sentence
from paicluster.api.requests.authentication import caller
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.wire.paddlecloud import (
    PaddlePod,
    PaddleQuotas,
    PaddleReply,
    PaddleUnauthorized,
    PaddleUsage,
    PaddleWorkers,
)
from paicluster.api.wire.query_parameters import int_param
from paicluster.logs.reader import LogReader
from paicluster.scheduler.resource_requests import Resources, decode
from paicluster.store import jobs
from paicluster.store.job_list import reasons_of
from paicluster.store.rows import JobRow, TaskRow
from paiprotocol.errors import InvalidParameters, NotFound

route = Routes("paddlecloud", returns={401: PaddleUnauthorized}, around=replying)

_JOB_NAME = Query("jobname", description="The name of a job, without its suffix if that is unambiguous.")

DEFAULT_LINES = 10
MAX_LINES = 100_000
MAX_LOG_BYTES = 8 << 20
"""Log text in one reply; longer logs lose their beginning. `pai logs` reads them whole."""
MAX_WORKERS = 20_000
"""Tasks in one list: twice as many as the largest job has."""

_BANNER = "=" * 26


@route(
    "GET /api/v1/workers",
    authority=JOBS,
    summary="List tasks",
    query=(_JOB_NAME,),
)
async def list_workers(request: Request) -> PaddleWorkers:
    """Tasks of one job, or of all unfinished ones, as Pods."""
    identity = caller(request)
    name = request.query_params.get("jobname")
    ctx = context(request)
    if name:
        try:
            rows = [await find_job(ctx, identity, name)]
        except (NotFound, InvalidParameters) as error:
            # Clients read `items` of whatever comes.
            return PaddleWorkers(error.status, sentence(error), [])
    else:
        rows = [job.row for job in await listed_jobs(ctx, identity) if job.row.sub_state != "Completed"]
    items: list[PaddlePod] = []
    for row in rows:
        items += await _pods(ctx, row)
        if len(items) >= MAX_WORKERS:
            break
    return PaddleWorkers(200, "", items[:MAX_WORKERS])


async def _pods(ctx: Context, row: JobRow) -> list[PaddlePod]:
    """The tasks of a job, and those that wait for resources, with the reason."""

    def read(conn: Connection) -> list[PaddlePod]:
        tasks = jobs.tasks_of(conn, row.id, row.attempt)
        pods = [pod(row, task) for task in tasks]
        if row.sub_state == "Completed" or len(tasks) >= row.total_tasks:
            return pods
        reason = reasons_of(conn, [row.framework]).get(row.framework)
        roles = decode(jobs.resource_request_of(conn, row.id)).resources.roles
        launched = {(task.role, task.task_index) for task in tasks}
        waiting = [(each.role, index) for each in roles for index in range(min(each.instances, MAX_WORKERS))]
        return pods + [
            pending_pod(row, role, index, reason) for role, index in waiting if (role, index) not in launched
        ]

    return await ctx.store.read(read)


@route(
    "GET /api/v1/logs",
    authority=JOBS,
    summary="Read the last lines of a job's trainers",
    query=(
        _JOB_NAME,
        Query("n", int, description="Lines of each trainer; 10 by default."),
        Query("w", description="The name of one worker."),
    ),
)
async def logs(request: Request) -> PaddleReply:
    """The last lines of each trainer, below a line with its name; with ``w``, of one worker."""
    identity = caller(request)
    ctx = context(request)
    get = request.query_params.get
    lines = int_param(get("n"), "n", DEFAULT_LINES, MAX_LINES)
    row = await find_job(ctx, identity, get("jobname") or "")
    tasks = await _tasks(ctx, row)
    worker = get("w")
    if worker:
        tasks = [task for task in tasks if pod_name(row, task) == worker]
        if not tasks:
            raise NotFound(f"Job {row.name} has no worker {worker[:200]}.")
    else:
        tasks = [task for task in tasks if task.role not in (MASTER, PSERVER)] or tasks
    text = await ctx.jobs.log_watcher.run(
        partial(_log_text, ctx, row, tasks, lines, with_banners=not worker),
        may_stall=any(ctx.engines.may_stall(task.uid) for task in tasks),
    )
    return PaddleReply(200, text)


async def _tasks(ctx: Context, row: JobRow) -> Sequence[TaskRow]:
    def read(conn: Connection) -> list[TaskRow]:
        return jobs.tasks_of(conn, row.id, row.attempt)

    return await ctx.store.read(read)


def _log_text(ctx: Context, row: JobRow, tasks: Sequence[TaskRow], lines: int, *, with_banners: bool) -> str:
    share = MAX_LOG_BYTES // max(1, len(tasks))
    parts = []
    for task in tasks:
        log = LogReader(ctx.engines.log_folder(task.uid), "all")
        end = log.size()
        start = max(log.tail(lines), end - share)
        data = b""
        while start < end and (chunk := log.read(start, end - start)).data:
            data += chunk.data
            start = chunk.end
        if with_banners:
            parts.append(f"{_BANNER}{pod_name(row, task)}{_BANNER}\n")
        parts.append(data.decode("utf-8", "replace"))
    return "".join(parts)


@route(
    "GET /api/v1/quota",
    authority=JOBS,
    summary="Get the use of quotas",
)
async def quota(request: Request) -> PaddleQuotas:
    """Quotas of the caller and of the caller's groups: what is used, and the limits."""
    identity = caller(request)
    ctx = context(request)
    capacity = Resources()
    for name, amount in ctx.capacity.virtual_clusters.quotas.items():
        if identity.access.may_use(name):
            capacity = capacity.plus(amount)
    reports = await ctx.capacity.quota_reports.of_user(identity.username)
    items = [resource_quota(report, capacity) for report in reports]
    own = items[0].status
    return PaddleQuotas(200, {name: PaddleUsage(own.used[name], own.hard[name]) for name in own.hard}, items)
