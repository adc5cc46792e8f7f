"""Virtual clusters: for now there is one, `default`, and it is the whole cluster."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound
from paicluster.api.answers import answer
from paicluster.api.context import Context, context, identify
from paicluster.store import jobs

DEFAULT = "default"


def _resources(cpu: float, memory_mb: int, gpu: int) -> dict[str, Any]:
    return {"cpu": cpu, "memory": memory_mb, "gpu": gpu, "vCores": cpu, "GPUs": gpu}


async def _default(ctx: Context) -> dict[str, Any]:
    nodes = ctx.nodes()
    used = await ctx.store.read(jobs.used_resources)
    cpu, memory, gpu = (sum(values) for values in zip(*used.values(), strict=True)) if used else (0, 0, 0)
    total_gpu = sum(len(node.gpus) for node in nodes)
    total = _resources(sum(n.cpu for n in nodes), sum(n.memory_mb for n in nodes), total_gpu)
    return {
        "capacity": 100,
        "maxCapacity": 100,
        "usedCapacity": 100 * gpu / total_gpu if total_gpu else 0,
        "dedicated": False,
        "resourcesUsed": _resources(cpu, int(memory), int(gpu)),
        "resourcesGuaranteed": total,
        "resourcesTotal": total,
    }


async def list_clusters(request: Request) -> Response:
    await identify(request)
    return answer({DEFAULT: await _default(context(request))})


async def one_cluster(request: Request) -> Response:
    await identify(request)
    name = request.path_params["vc"]
    if name != DEFAULT:
        raise NotFound(f"Vc {name} not found", code="NoVirtualClusterError")
    return answer(await _default(context(request)))
