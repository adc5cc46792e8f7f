"""Virtual clusters: what each is entitled to, what its jobs use, and what the nodes have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound
from paicluster.api.answers import answer
from paicluster.api.context import Context, context, identify
from paicluster.scheduler.needs import Amount
from paicluster.store import jobs


def _resources(amount: Amount) -> dict[str, Any]:
    cpu, memory_mb, gpu = amount
    return {"cpu": cpu, "memory": memory_mb, "gpu": gpu, "vCores": cpu, "GPUs": gpu}


async def virtual_clusters(ctx: Context) -> dict[str, Any]:
    """Every virtual cluster, by name."""
    used: dict[str, Amount] = {}
    for place in await ctx.store.read(jobs.held_places):
        if place.guest:  # it gives way: what it takes is still the share's own
            continue
        taken = Amount(int(place.cpu), place.memory_mb, place.gpus)
        used[place.vc] = used.get(place.vc, Amount()).plus(taken)
    all_gpus = sum(share.gpu for share in ctx.shares.values())
    found = {}
    for name, share in ctx.shares.items():
        taken = used.get(name, Amount())
        percent = 100 * share.gpu / all_gpus if all_gpus else 100 / len(ctx.shares)
        found[name] = {
            "capacity": percent,
            "maxCapacity": percent,
            "usedCapacity": 100 * taken.gpu / all_gpus if all_gpus else 0,
            "dedicated": False,
            "resourcesUsed": _resources(taken),
            "resourcesGuaranteed": _resources(share),
            "resourcesTotal": _resources(share),
        }
    return found


async def list_clusters(request: Request) -> Response:
    await identify(request)
    ctx = context(request)
    if "nodes" in request.query_params:
        held = await ctx.store.read(jobs.held_places)
        in_use = Counter({node.name: 0 for node in ctx.nodes()})
        for place in held:
            in_use[place.node] += place.gpus
        return answer({node.name: _node(len(node.gpus), in_use[node.name]) for node in ctx.nodes()})
    return answer(await virtual_clusters(ctx))


def _node(total: int, used: int) -> dict[str, int]:
    return {"gpuUsed": used, "gpuAvailable": total - used, "gpuTotal": total}


async def one_cluster(request: Request) -> Response:
    await identify(request)
    name = request.path_params["vc"]
    found = await virtual_clusters(context(request))
    if name not in found:
        raise NotFound(f"Vc {name} not found", code="NoVirtualClusterError")
    return answer(found[name])
