"""Routes of usage: what tasks, jobs, nodes and virtual clusters use now, and used over time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.api.context import Context, authenticate, context
from paicluster.api.responses import int_param, json_response
from paicluster.api.v2.jobs import job_row
from paicluster.metrics.usage import Usage, total
from paicluster.metrics.usage_history import (
    Point,
    SeriesKey,
    job_key,
    node_key,
    task_key,
    virtual_cluster_key,
)
from paicluster.metrics.usage_sampler import TaskSample, UsageSample
from paicluster.services.virtual_clusters import no_cluster

# Jobs and tasks in one response, those that use most CPU first.
MAX_JOBS = 1000
MAX_TASKS = 2000
_COLUMNS = ("cpu", "memory", "read", "write", "gpu", "gpuMemory")
_MB = 1 << 20


async def current(request: Request) -> Response:
    """Usage of nodes, virtual clusters, running jobs and the server now; with ``user``, of jobs of a user."""
    identity = await authenticate(request)
    ctx = context(request)
    user = request.query_params.get("user")
    sample = ctx.usage.current
    tasks = [
        one
        for one in sample.tasks
        if (user is None or one.task.user == user)
        # A task may run untrusted code: it sees only the jobs of its own user.
        and (identity.job_id is None or one.task.user == identity.username)
    ]
    totals = {node.name: (node.cpu, node.memory_mb, len(node.gpus)) for node in await ctx.nodes()}
    totals_of_clusters = {name: (quota.cpu, quota.memory_mb, quota.gpu) for name, quota in ctx.quotas.items()}
    jobs = [_job_json(of_job) for of_job in UsageSample(tasks=tasks).jobs().values()]
    jobs.sort(key=lambda job: (-job["cpu"], job["user"], job["name"]))
    return json_response(
        {
            **_sample_json(ctx),
            "nodes": [
                {"name": name, **_usage_json(usage), **_totals_json(totals.get(name))}
                for name, (usage, _) in sample.nodes.items()
            ],
            "virtualClusters": [
                {"name": name, **_usage_json(usage), **_totals_json(totals_of_clusters.get(name))}
                for name, usage in sample.virtual_clusters.items()
            ],
            "jobs": jobs[:MAX_JOBS],
            "jobCount": len(jobs),
            "server": _usage_json(sample.server),
        }
    )


async def of_job(request: Request) -> Response:
    """Usage of a job over time, or with ``role`` and ``index`` of one task; and of its running tasks now."""
    identity = await authenticate(request)
    ctx = context(request)
    row = await job_row(request, identity)
    role, index = request.query_params.get("role"), request.query_params.get("index")
    if index and not role:
        raise InvalidParameters('"index" needs "role": send the task role of the task, too.')
    key = task_key(row.id, role, int_param(index, "index", 0)) if role else job_key(row.id)
    tasks = [one for one in ctx.usage.current.tasks if one.task.job_id == row.id]
    # The order of the job's tasks, whatever they use: a table that is shown again and again must not jump.
    tasks.sort(key=lambda one: (one.task.role, one.task.index))
    return json_response(
        {
            **_sample_json(ctx),
            "series": await _series_json(ctx, key),
            "tasks": [_task_json(one) for one in tasks[:MAX_TASKS]],
            "taskCount": len(tasks),
        }
    )


async def of_node(request: Request) -> Response:
    await authenticate(request)
    ctx = context(request)
    name = request.path_params["node"]
    series = await _series_json(ctx, node_key(name))
    if not series["times"] and all(node.name != name for node in await ctx.nodes()):
        raise NotFound(f"There is no node {name[:200]!r} in this cluster.")
    return json_response({**_sample_json(ctx), "series": series})


async def of_virtual_cluster(request: Request) -> Response:
    await authenticate(request)
    ctx = context(request)
    name = request.path_params["vc"]
    if name not in ctx.quotas:
        raise no_cluster(name[:200])
    return json_response({**_sample_json(ctx), "series": await _series_json(ctx, virtual_cluster_key(name))})


def _sample_json(ctx: Context) -> dict[str, Any]:
    return {"time": ctx.usage.current.time_ms or None, "interval": ctx.usage.interval_s}


async def _series_json(ctx: Context, key: SeriesKey) -> dict[str, list[Any]]:
    points: Sequence[Point] = await asyncio.to_thread(ctx.usage.history.points, key)
    columns: dict[str, list[Any]] = {"times": [point.time_ms for point in points]}
    rows = [_usage_json(point.usage) for point in points]
    columns.update((name, [row[name] for row in rows]) for name in _COLUMNS)
    return columns


def _job_json(tasks: Sequence[TaskSample]) -> dict[str, Any]:
    first = tasks[0].task
    return {
        "user": first.user,
        "name": first.job,
        "virtualCluster": first.vc,
        "tasks": len(tasks),
        **_usage_json(total(one.usage for one in tasks)),
        **_totals_json(_requested(tasks)),
    }


def _task_json(sample: TaskSample) -> dict[str, Any]:
    task = sample.task
    return {
        "role": task.role,
        "index": task.index,
        "node": task.node,
        **_usage_json(sample.usage),
        **_totals_json(_requested([sample])),
    }


def _requested(tasks: Sequence[TaskSample]) -> tuple[float, int, int]:
    return (
        sum(one.task.cpu for one in tasks),
        sum(one.task.memory_mb for one in tasks),
        sum(len(one.task.gpus) for one in tasks),
    )


def _usage_json(usage: Usage) -> dict[str, float | int | None]:
    """Cores and GPUs with three digits, bytes as whole numbers; None for what is not measured."""

    def exact(value: float) -> float | None:
        return None if math.isnan(value) else round(value, 3)

    def whole(value: float) -> int | None:
        return None if math.isnan(value) else round(value)

    values = (
        exact(usage.cpu),
        whole(usage.memory),
        whole(usage.read),
        whole(usage.write),
        exact(usage.gpu),
        whole(usage.gpu_memory),
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _totals_json(totals: tuple[float, int, int] | None) -> dict[str, float]:
    """What there is: a node's capacity, a virtual cluster's quota, a task's request."""
    cpu, memory_mb, gpus = totals or (0, 0, 0)
    return {"cpuTotal": cpu, "memoryTotal": memory_mb * _MB, "gpuTotal": gpus}
