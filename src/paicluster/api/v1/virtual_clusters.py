"""Routes of version 1 virtual clusters."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.permissions import authenticate_reader
from paicluster.api.routing.authority import ADMINISTRATION, JOBS_V1
from paicluster.api.routing.route import Routes
from paicluster.api.v2 import virtual_clusters as v2
from paicluster.api.v2.virtual_clusters import virtual_clusters
from paicluster.api.wire.base import Message
from paicluster.api.wire.clusters import (
    VirtualCluster,
    VirtualClusterBody,
    VirtualClusterResources,
    VirtualClusterStatusBody,
)
from paicluster.api.wire.v1 import ResourcesV1, VirtualClusterV1
from paicluster.api.wire.v1 import VirtualClusterStatusV1 as Status
from paicluster.services.virtual_clusters import no_cluster
from paicluster.store import jobs

route = Routes("version 1")


@route(
    "GET /api/v1/virtual-clusters",
    authority=JOBS_V1,
    summary="List virtual clusters",
)
async def list_clusters(request: Request) -> dict[str, VirtualClusterV1]:
    await authenticate_reader(request)
    return await _virtual_clusters(context(request))


@route(
    "GET /api/v1/virtual-clusters/{vc}",
    authority=JOBS_V1,
    summary="Get a virtual cluster",
    errors=(400,),
)
async def one_cluster(request: Request) -> VirtualClusterV1:
    await authenticate_reader(request)
    name = v2.validate_name(request.path_params["vc"])
    clusters = await _virtual_clusters(context(request))
    if name not in clusters:
        raise no_cluster(name)
    return clusters[name]


async def _virtual_clusters(ctx: Context) -> dict[str, VirtualClusterV1]:
    v2_clusters = await virtual_clusters(ctx)
    counts = await ctx.store.read(
        lambda conn: {
            name: (_count(conn, name, "RUNNING"), _count(conn, name, "WAITING")) for name in v2_clusters
        }
    )
    addresses = [node.ip for node in await ctx.capacity.nodes.current()]
    return {
        name: _as_v1(vc, *counts[name], addresses, _status(ctx, name, sum(counts[name])))
        for name, vc in v2_clusters.items()
    }


def _as_v1(
    vc: VirtualCluster, running: int, pending: int, addresses: list[str], status: Status
) -> VirtualClusterV1:
    """A virtual cluster of version 2, with version 1's numbers of jobs and addresses of nodes."""
    return VirtualClusterV1(
        capacity=vc.capacity,
        max_capacity=vc.max_capacity,
        used_capacity=vc.used_capacity,
        num_active_jobs=running,
        num_jobs=running + pending,
        num_pending_jobs=pending,
        resources_used=_resources(vc.resources_used),
        resources_total=_resources(vc.resources_total),
        dedicated=vc.dedicated,
        node_list=addresses,
        status=status,
    )


def _resources(resources: VirtualClusterResources) -> ResourcesV1:
    return ResourcesV1(resources.memory, resources.v_cores, resources.gpus)


def _count(conn: Connection, vc: str, state: str) -> int:
    query = jobs.JobQuery(vc=(vc,), state=(state,), limit=0, with_total=True)
    return jobs.list_jobs(conn, query).total or 0


def _status(ctx: Context, name: str, unfinished: int) -> Status:
    if name not in ctx.capacity.virtual_clusters.stopped:
        return "RUNNING"
    return "DRAINING" if unfinished else "STOPPED"


# -- changes --------------------------------------------------------------------------------------


@route(
    "PUT /api/v1/virtual-clusters/{vc}",
    authority=ADMINISTRATION,
    guard=v2.may_change,
    summary="Create a virtual cluster, or change its capacity",
    status=201,
    errors=(409,),
)
async def put_cluster(request: Request, body: VirtualClusterBody) -> Message:
    result = await v2.put(request, body)
    verb = "create" if result.created else "update"
    return Message(f"{verb} vc: {result.name} to capacity: {result.capacity:g} successfully")


@route(
    "PUT /api/v1/virtual-clusters/{vc}/status",
    authority=ADMINISTRATION,
    guard=v2.may_change,
    summary="Start or stop a virtual cluster",
    status=201,
)
async def put_status(request: Request, body: VirtualClusterStatusBody) -> Message:
    await v2.set_status(request, body)
    verb = "stop" if body.vc_status == "stopped" else "active"
    return Message(f"{verb} vc {request.path_params['vc']} successfully")


@route(
    "DELETE /api/v1/virtual-clusters/{vc}",
    authority=ADMINISTRATION,
    summary="Delete a virtual cluster",
    status=201,
    errors=(400,),
)
async def delete_cluster(request: Request) -> Message:
    return Message(f"Remove vc: {await v2.remove(request)} successfully")
