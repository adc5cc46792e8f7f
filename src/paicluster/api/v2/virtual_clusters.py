"""Routes of virtual clusters: quotas, usage, nodes; changes by administrators."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMINISTRATION, JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.wire.base import MessageWithStatus
from paicluster.api.wire.clusters import (
    NodeUse,
    Sku,
    VirtualCluster,
    VirtualClusterBody,
    VirtualClusterResources,
    VirtualClusterStatusBody,
)
from paicluster.engines.interface import Node
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.virtual_clusters import DEFAULT, no_cluster
from paicluster.store import jobs
from paiprotocol.errors import Forbidden, InvalidParameters

route = Routes("virtual cluster")

STATUSES = ("running", "stopped")
_NAME = re.compile(r"[A-Za-z0-9_]+")


def _resources(resources: Resources) -> VirtualClusterResources:
    cpu, memory_mb, gpu = resources
    return VirtualClusterResources(cpu, memory_mb, gpu, cpu, gpu)


async def virtual_clusters(ctx: Context) -> dict[str, VirtualCluster]:
    """Every virtual cluster, by name."""
    await ctx.capacity.nodes.current()
    used: dict[str, Resources] = {}
    for placement in await ctx.store.read(jobs.task_usage):
        if placement.preemptible:  # preemptible: its resources still count as free in the quota
            continue
        resources = Resources(int(placement.cpu), placement.memory_mb, placement.gpus)
        used[placement.vc] = used.get(placement.vc, Resources()).plus(resources)
    all_gpus = sum(quota.gpu for quota in ctx.capacity.virtual_clusters.quotas.values())
    all_cores = sum(quota.cpu for quota in ctx.capacity.virtual_clusters.quotas.values())
    clusters = {}
    for name, quota in ctx.capacity.virtual_clusters.quotas.items():
        vc_used = used.get(name, Resources())
        used_share = vc_used.gpu / all_gpus if all_gpus else vc_used.cpu / all_cores if all_cores else 0
        clusters[name] = VirtualCluster(
            capacity=ctx.capacity.virtual_clusters.capacity(name),
            max_capacity=ctx.capacity.virtual_clusters.max_capacity(name),
            used_capacity=100 * used_share,
            dedicated=False,
            resources_used=_resources(vc_used),
            resources_guaranteed=_resources(quota),
            resources_total=_resources(quota),
        )
    return clusters


@route(
    "GET /api/v2/virtual-clusters",
    authority=JOBS,
    summary="List virtual clusters, or with `nodes` the resources of each node",
    query=(Query("nodes", description="If present, list nodes instead."),),
)
async def list_clusters(request: Request) -> dict[str, VirtualCluster] | dict[str, NodeUse]:
    await authenticate(request)
    ctx = context(request)
    if "nodes" in request.query_params:
        nodes = await ctx.capacity.nodes.current()
        used = {node.name: Resources() for node in nodes}
        for placement in await ctx.store.read(jobs.task_usage):
            if placement.node in used:
                resources = Resources(int(placement.cpu), placement.memory_mb, placement.gpus)
                used[placement.node] = used[placement.node].plus(resources)
        return {node.name: _node_use(node, used[node.name]) for node in nodes}
    return await virtual_clusters(ctx)


def _node_use(node: Node, used: Resources) -> NodeUse:
    """A node with what tasks requested of it. OpenPAI tells only the GPUs."""
    total = len(node.gpus)
    return NodeUse(
        gpu_used=used.gpu,
        gpu_available=total - used.gpu,
        gpu_total=total,
        cpu_used=used.cpu,
        cpu_total=node.cpu,
        memory_used=used.memory_mb,
        memory_total=node.memory_mb,
    )


@route(
    "GET /api/v2/virtual-clusters/{vc}",
    authority=JOBS,
    summary="Get a virtual cluster",
    errors=(400,),
)
async def one_cluster(request: Request) -> VirtualCluster:
    await authenticate(request)
    name = validate_name(request.path_params["vc"])
    clusters = await virtual_clusters(context(request))
    if name not in clusters:
        raise no_cluster(name)
    return clusters[name]


@route(
    "GET /api/v2/virtual-clusters/{vc}/sku-types",
    "GET /api/v2/cluster/sku-types",
    authority=JOBS,
    summary="List SKUs, the allocation units of the nodes",
    query=(Query("vc"),),
    errors=(404,),
)
async def sku_types(request: Request) -> dict[str, Sku]:
    """SKUs, the allocation units of the nodes: a GPU with its part of the node, or a core."""
    await authenticate(request)
    ctx = context(request)
    vc = request.path_params.get("vc") or request.query_params.get("vc")
    if vc is not None and validate_name(vc) not in ctx.capacity.virtual_clusters.quotas:
        raise no_cluster(vc)
    skus: dict[str, Sku] = {}
    for node in await ctx.capacity.nodes.current():
        units = len(node.gpus) or max(1, node.cpu)
        name = "gpu" if node.gpus else "cpu"
        sku = Sku(node.cpu // units, node.memory_mb // units, 1 if node.gpus else 0)
        # Different kinds of nodes get a number in their SKU's name.
        number = 1
        while skus.setdefault(name if number == 1 else f"{name}{number}", sku) != sku:
            number += 1
    return skus


def validate_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidParameters("VC name should only contain alpha-numeric and underscore characters")
    return name


# -- changes --------------------------------------------------------------------------------------


class PutResult(msgspec.Struct, frozen=True):
    """Result of a PUT; version 1 and version 2 render it differently."""

    name: str
    capacity: float
    created: bool


async def put(request: Request, body: VirtualClusterBody) -> PutResult:
    name, capacity = request.path_params["vc"], body.vc_capacity
    max_capacity = capacity if body.vc_max_capacity is UNSET else body.vc_max_capacity
    clusters = context(request).capacity.virtual_clusters
    created = await clusters.put(
        name, capacity, max_capacity, body.description or "", body.external_name or ""
    )
    return PutResult(name, capacity, created)


async def set_status(request: Request, body: VirtualClusterStatusBody) -> None:
    if body.vc_status not in STATUSES:
        raise InvalidParameters(f"Unknown vc status: {body.vc_status[:40]}", code="BadConfigurationError")
    await context(request).capacity.virtual_clusters.set_status(request.path_params["vc"], body.vc_status)


async def remove(request: Request) -> str:
    await may_change(request)
    name: str = request.path_params["vc"]
    await context(request).capacity.virtual_clusters.remove(name)
    return name


async def may_change(request: Request) -> None:
    """Guard of routes that change the virtual cluster in the path."""
    await authenticate(request)
    if validate_name(request.path_params["vc"]) == DEFAULT:
        raise Forbidden("Update operation to default vc isn't allowed")


@route(
    "PUT /api/v2/virtual-clusters/{vc}",
    authority=ADMINISTRATION,
    guard=may_change,
    summary="Create a virtual cluster, or change its capacity",
    status=201,
    errors=(409,),
)
async def put_cluster(request: Request, body: VirtualClusterBody) -> MessageWithStatus:
    result = await put(request, body)
    verb = "Create" if result.created else "Update"
    return _created(f"{verb} virtual cluster {result.name} to capacity {result.capacity:g} successfully.")


@route(
    "PUT /api/v2/virtual-clusters/{vc}/status",
    authority=ADMINISTRATION,
    guard=may_change,
    summary="Start or stop a virtual cluster",
    status=201,
)
async def put_status(request: Request, body: VirtualClusterStatusBody) -> MessageWithStatus:
    await set_status(request, body)
    verb = "Stop" if body.vc_status == "stopped" else "Activate"
    return _created(f"{verb} virtual cluster {request.path_params['vc']} successfully.")


@route(
    "DELETE /api/v2/virtual-clusters/{vc}",
    authority=ADMINISTRATION,
    summary="Delete a virtual cluster",
    status=201,
    errors=(400,),
)
async def delete_cluster(request: Request) -> MessageWithStatus:
    return _created(f"Remove virtual cluster {await remove(request)} successfully.")


def _created(message: str) -> MessageWithStatus:
    return MessageWithStatus(201, message)
