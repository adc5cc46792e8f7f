"""Routes of a job's tasks: workers, logs, and the use of the caller's quota."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cluster_objects import pending_pod, pod, pod_name, resource_quota
from paicluster.api.paddlecloud.job_translation import MASTER, PSERVER
from paicluster.api.paddlecloud.jobs import find_job, listed_jobs
from paicluster.api.paddlecloud.replies import paddle_route, sentence, success
from paicluster.api.responses import int_param, json_response
from paicluster.auth.tokens import Identity
from paicluster.logs.reader import LogReader
from paicluster.scheduler.resource_requests import Resources, decode
from paicluster.store import jobs
from paicluster.store.job_list import reasons_of
from paicluster.store.rows import JobRow, TaskRow

DEFAULT_LINES = 10
MAX_LINES = 100_000
MAX_LOG_BYTES = 8 << 20
"""Log text in one reply; longer logs lose their beginning. `pai logs` reads them whole."""
MAX_WORKERS = 20_000
"""Tasks in one list: twice as many as the largest job has."""

_BANNER = "=" * 26


@paddle_route
async def list_workers(request: Request, identity: Identity) -> Response:
    """Tasks of one job, or of all unfinished ones, as Pods."""
    name = request.query_params.get("jobname")
    ctx = context(request)
    if name:
        try:
            rows = [await find_job(ctx, identity, name)]
        except (NotFound, InvalidParameters) as error:
            # Clients read `items` of whatever comes.
            return json_response({"code": error.status, "msg": sentence(error), "items": []})
    else:
        rows = [job.row for job in await listed_jobs(ctx, identity) if job.row.sub_state != "Completed"]
    items = []
    for row in rows:
        items += await _pods(ctx, row)
        if len(items) >= MAX_WORKERS:
            break
    return success(items=items[:MAX_WORKERS])


async def _pods(ctx: Context, row: JobRow) -> list[dict[str, Any]]:
    """The tasks of a job, and those that wait for resources, with the reason."""

    def read(conn: Connection) -> list[dict[str, Any]]:
        tasks = jobs.tasks_of(conn, row.id, row.attempt)
        found = [pod(row, task) for task in tasks]
        if row.sub_state == "Completed" or len(tasks) >= row.total_tasks:
            return found
        reason = reasons_of(conn, [row.framework]).get(row.framework)
        roles = decode(jobs.resource_request_of(conn, row.id)).resources.roles
        launched = {(task.role, task.task_index) for task in tasks}
        waiting = [(one.role, index) for one in roles for index in range(min(one.instances, MAX_WORKERS))]
        return found + [
            pending_pod(row, role, index, reason) for role, index in waiting if (role, index) not in launched
        ]

    return await ctx.store.read(read)


@paddle_route
async def logs(request: Request, identity: Identity) -> Response:
    """The last lines of each trainer, below a line with its name; with ``w``, of one worker."""
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
    text = await asyncio.to_thread(_log_text, ctx, row, tasks, lines, with_banners=not worker)
    return success(msg=text)


async def _tasks(ctx: Context, row: JobRow) -> Sequence[TaskRow]:
    def read(conn: Connection) -> list[TaskRow]:
        return jobs.tasks_of(conn, row.id, row.attempt)

    return await ctx.store.read(read)


def _log_text(ctx: Context, row: JobRow, tasks: Sequence[TaskRow], lines: int, *, with_banners: bool) -> str:
    share = MAX_LOG_BYTES // max(1, len(tasks))
    parts = []
    for task in tasks:
        log = LogReader(ctx.logs.log_folder(task.uid), "all")
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


@paddle_route
async def quota(request: Request, identity: Identity) -> Response:
    """Quotas of the caller and of the caller's groups: what is used, and the limits."""
    ctx = context(request)
    capacity = Resources()
    for name, amount in ctx.quotas.items():
        if identity.access.may_use(name):
            capacity = capacity.plus(amount)
    reports = await ctx.user_quotas.reports(identity.username)
    items = [resource_quota(report, capacity) for report in reports]
    own = items[0]["status"]
    usage = {name: {"used": own["used"][name], "limit": own["hard"][name]} for name in own["hard"]}
    return success(msg=usage, items=items)
