"""Route of the metrics that a job's tasks log per step."""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes, Text
from paicluster.api.v2.jobs import job_row
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.query_parameters import int_param
from paicluster.logs.task_metrics import read_metrics
from paicluster.store import history
from paicluster.store.rows import TaskRow

route = Routes("job")

MEDIA_TYPE = "application/x-ndjson"


@route(
    "GET /api/v2/jobs/{framework}/metrics",
    authority=JOBS,
    summary="Metrics that a task logs per step, one line of JSON each",
    query=(
        Query("role"),
        Query("index", Count),
        Query("start", Count, description="Byte offset to start from."),
    ),
    returns={200: Text("application/x-ndjson")},
    other_methods=405,
)
async def metrics(request: Request) -> Response:
    """One line of JSON per step, from a byte offset on; by default of the first task."""
    identity = await authenticate(request)
    ctx = context(request)
    row = await job_row(request, identity)
    get = request.query_params.get
    role, index = get("role"), int_param(get("index"), "index", 0)
    start = int_param(get("start"), "start", 0)

    def read(conn: Connection) -> TaskRow | None:
        tasks = [
            task
            for task in history.tasks_of(conn, row.id, row.attempt)
            if task.task_index == index and task.role == (role or task.role)
        ]
        return max(tasks, key=lambda task: (-task.role_order, task.task_attempt), default=None)

    task = await ctx.store.read(read)
    if task is None:
        return Response(b"", media_type=MEDIA_TYPE)
    data = await asyncio.to_thread(read_metrics, ctx.engines.log_folder(task.uid), start)
    return Response(data, media_type=MEDIA_TYPE)
