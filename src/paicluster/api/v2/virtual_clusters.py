"""Routes of virtual clusters: quotas, usage, nodes; changes by administrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters
from paicluster.api.context import Context, authenticate, context
from paicluster.api.request_fields import GROUPNAME, fields_of
from paicluster.api.responses import json_response
from paicluster.engines.interface import Node
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.virtual_clusters import DEFAULT, no_cluster
from paicluster.store import jobs

STATUSES = ("running", "stopped")


def _resources_json(resources: Resources) -> dict[str, Any]:
    cpu, memory_mb, gpu = resources
    return {"cpu": cpu, "memory": memory_mb, "gpu": gpu, "vCores": cpu, "GPUs": gpu}


async def virtual_clusters(ctx: Context) -> dict[str, Any]:
    """Every virtual cluster, by name."""
    await ctx.nodes()
    used: dict[str, Resources] = {}
    for placement in await ctx.store.read(jobs.task_usage):
        if placement.preemptible:  # preemptible: its resources still count as free in the quota
            continue
        resources = Resources(int(placement.cpu), placement.memory_mb, placement.gpus)
        used[placement.vc] = used.get(placement.vc, Resources()).plus(resources)
    all_gpus = sum(quota.gpu for quota in ctx.quotas.values())
    all_cores = sum(quota.cpu for quota in ctx.quotas.values())
    clusters = {}
    for name, quota in ctx.quotas.items():
        vc_used = used.get(name, Resources())
        used_share = vc_used.gpu / all_gpus if all_gpus else vc_used.cpu / all_cores if all_cores else 0
        clusters[name] = {
            "capacity": ctx.virtual_clusters.capacity(name),
            "maxCapacity": ctx.virtual_clusters.max_capacity(name),
            "usedCapacity": 100 * used_share,
            "dedicated": False,
            "resourcesUsed": _resources_json(vc_used),
            "resourcesGuaranteed": _resources_json(quota),
            "resourcesTotal": _resources_json(quota),
        }
    return clusters


async def list_clusters(request: Request) -> Response:
    await authenticate(request)
    ctx = context(request)
    if "nodes" in request.query_params:
        nodes = await ctx.nodes()
        used = {node.name: Resources() for node in nodes}
        for placement in await ctx.store.read(jobs.task_usage):
            if placement.node in used:
                resources = Resources(int(placement.cpu), placement.memory_mb, placement.gpus)
                used[placement.node] = used[placement.node].plus(resources)
        return json_response({node.name: _node_json(node, used[node.name]) for node in nodes})
    return json_response(await virtual_clusters(ctx))


def _node_json(node: Node, used: Resources) -> dict[str, int]:
    """A node with what tasks requested of it. OpenPAI tells only the GPUs."""
    total = len(node.gpus)
    return {
        "gpuUsed": used.gpu,
        "gpuAvailable": total - used.gpu,
        "gpuTotal": total,
        "cpuUsed": used.cpu,
        "cpuTotal": node.cpu,
        "memoryUsed": used.memory_mb,
        "memoryTotal": node.memory_mb,
    }


async def one_cluster(request: Request) -> Response:
    await authenticate(request)
    name = validate_name(request.path_params["vc"])
    clusters = await virtual_clusters(context(request))
    if name not in clusters:
        raise no_cluster(name)
    return json_response(clusters[name])


async def sku_types(request: Request) -> Response:
    """SKUs, the allocation units of the nodes: a GPU with its part of the node, or a core."""
    await authenticate(request)
    ctx = context(request)
    vc = request.path_params.get("vc") or request.query_params.get("vc")
    if vc is not None and validate_name(vc) not in ctx.quotas:
        raise no_cluster(vc)
    skus: dict[str, dict[str, int]] = {}
    for node in await ctx.nodes():
        units = len(node.gpus) or max(1, node.cpu)
        name = "gpu" if node.gpus else "cpu"
        sku = {
            "cpu": node.cpu // units,
            "memory": node.memory_mb // units,
            "gpu": 1 if node.gpus else 0,
        }
        # Different kinds of nodes get a number in their SKU's name.
        number = 1
        while skus.setdefault(name if number == 1 else f"{name}{number}", sku) != sku:
            number += 1
    return json_response(skus)


def validate_name(name: str) -> str:
    if not GROUPNAME.fullmatch(name):
        raise InvalidParameters("VC name should only contain alpha-numeric and underscore characters")
    return name


# -- changes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of a PUT; version 1 and version 2 render it differently."""

    name: str
    capacity: float
    created: bool


async def put(request: Request) -> PutResult:
    name = await _authorize_change(request)
    fields = await fields_of(request)
    capacity = fields.number("vcCapacity", minimum=0, maximum=100)
    max_capacity = fields.number("vcMaxCapacity", capacity, minimum=capacity, maximum=100)
    description = fields.text("description", "")
    external_name = fields.text("externalName", "")
    fields.end()
    clusters = context(request).virtual_clusters
    created = await clusters.put(name, capacity, max_capacity, description, external_name)
    return PutResult(name, capacity, created)


async def set_status(request: Request) -> tuple[str, str]:
    """Set the status of a virtual cluster; returns its name and new status."""
    name = await _authorize_change(request)
    fields = await fields_of(request)
    status = fields.text("vcStatus")
    fields.end()
    if status not in STATUSES:
        raise InvalidParameters(f"Unknown vc status: {status[:40]}", code="BadConfigurationError")
    await context(request).virtual_clusters.set_status(name, status)
    return name, status


async def remove(request: Request) -> str:
    name = await _authorize_change(request)
    await context(request).virtual_clusters.remove(name)
    return name


async def _authorize_change(request: Request) -> str:
    await authenticate(request)
    name = validate_name(request.path_params["vc"])
    if name == DEFAULT:
        raise Forbidden("Update operation to default vc isn't allowed")
    return name


async def put_cluster(request: Request) -> Response:
    result = await put(request)
    verb = "Create" if result.created else "Update"
    return _created(f"{verb} virtual cluster {result.name} to capacity {result.capacity:g} successfully.")


async def put_status(request: Request) -> Response:
    name, status = await set_status(request)
    verb = "Stop" if status == "stopped" else "Activate"
    return _created(f"{verb} virtual cluster {name} successfully.")


async def delete_cluster(request: Request) -> Response:
    return _created(f"Remove virtual cluster {await remove(request)} successfully.")


def _created(message: str) -> Response:
    return json_response({"status": 201, "message": message}, 201)
