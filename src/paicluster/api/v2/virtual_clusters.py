"""Virtual clusters: what each is entitled to, what its jobs use, what the nodes have; and changing shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters
from paicluster.api.context import Context, authenticate, context
from paicluster.api.permissions import authenticate_admin
from paicluster.api.request_fields import GROUPNAME, fields_of
from paicluster.api.responses import json_response
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.virtual_clusters import DEFAULT, no_cluster
from paicluster.store import jobs

STATUSES = ("running", "stopped")


def _resources(amount: Resources) -> dict[str, Any]:
    cpu, memory_mb, gpu = amount
    return {"cpu": cpu, "memory": memory_mb, "gpu": gpu, "vCores": cpu, "GPUs": gpu}


async def virtual_clusters(ctx: Context) -> dict[str, Any]:
    """Every virtual cluster, by name."""
    await ctx.nodes()
    used: dict[str, Resources] = {}
    for place in await ctx.store.read(jobs.held_places):
        if place.guest:  # it gives way: what it takes is still the share's own
            continue
        taken = Resources(int(place.cpu), place.memory_mb, place.gpus)
        used[place.vc] = used.get(place.vc, Resources()).plus(taken)
    all_gpus = sum(share.gpu for share in ctx.shares.values())
    all_cores = sum(share.cpu for share in ctx.shares.values())
    found = {}
    for name, share in ctx.shares.items():
        taken = used.get(name, Resources())
        in_use = taken.gpu / all_gpus if all_gpus else taken.cpu / all_cores if all_cores else 0
        found[name] = {
            "capacity": ctx.virtual_clusters.capacity(name),
            "maxCapacity": ctx.virtual_clusters.max_capacity(name),
            "usedCapacity": 100 * in_use,
            "dedicated": False,
            "resourcesUsed": _resources(taken),
            "resourcesGuaranteed": _resources(share),
            "resourcesTotal": _resources(share),
        }
    return found


async def list_clusters(request: Request) -> Response:
    await authenticate(request)
    ctx = context(request)
    if "nodes" in request.query_params:
        held = await ctx.store.read(jobs.held_places)
        nodes = await ctx.nodes()
        in_use = Counter({node.name: 0 for node in nodes})
        for place in held:
            in_use[place.node] += place.gpus
        return json_response({node.name: _node(len(node.gpus), in_use[node.name]) for node in nodes})
    return json_response(await virtual_clusters(ctx))


def _node(total: int, used: int) -> dict[str, int]:
    return {"gpuUsed": used, "gpuAvailable": total - used, "gpuTotal": total}


async def one_cluster(request: Request) -> Response:
    await authenticate(request)
    name = checked_name(request.path_params["vc"])
    found = await virtual_clusters(context(request))
    if name not in found:
        raise no_cluster(name)
    return json_response(found[name])


async def sku_types(request: Request) -> Response:
    """The pieces that the nodes are handed out in: a GPU with its part of the machine, or a core."""
    await authenticate(request)
    ctx = context(request)
    vc = request.path_params.get("vc") or request.query_params.get("vc")
    if vc is not None and checked_name(vc) not in ctx.shares:
        raise no_cluster(vc)
    found: dict[str, dict[str, int]] = {}
    for node in await ctx.nodes():
        pieces = len(node.gpus) or max(1, node.cpu)
        name = "gpu" if node.gpus else "cpu"
        sku = {
            "cpu": node.cpu // pieces,
            "memory": node.memory_mb // pieces,
            "gpu": 1 if node.gpus else 0,
        }
        # Machines that differ are told apart by a number.
        number = 1
        while found.setdefault(name if number == 1 else f"{name}{number}", sku) != sku:
            number += 1
    return json_response(found)


def checked_name(name: str) -> str:
    if not GROUPNAME.fullmatch(name):
        raise InvalidParameters("VC name should only contain alpha-numeric and underscore characters")
    return name


# -- changing them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutResult:
    """What a PUT did: for the answer, which the versions word differently."""

    name: str
    capacity: float
    created: bool


async def put(request: Request) -> PutResult:
    name = await _changeable(request)
    given = await fields_of(request)
    capacity = given.number("vcCapacity", minimum=0, maximum=100)
    largest = given.number("vcMaxCapacity", capacity, minimum=capacity, maximum=100)
    description = given.text("description", "")
    external_name = given.text("externalName", "")
    given.end()
    clusters = context(request).virtual_clusters
    created = await clusters.put(name, capacity, largest, description, external_name)
    return PutResult(name, capacity, created)


async def set_status(request: Request) -> tuple[str, str]:
    """The name and the status it has now."""
    name = await _changeable(request)
    given = await fields_of(request)
    status = given.text("vcStatus")
    given.end()
    if status not in STATUSES:
        raise InvalidParameters(f"Unknown vc status: {status[:40]}", code="BadConfigurationError")
    await context(request).virtual_clusters.set_status(name, status)
    return name, status


async def remove(request: Request) -> str:
    name = await _changeable(request)
    await context(request).virtual_clusters.remove(name)
    return name


async def _changeable(request: Request) -> str:
    await authenticate_admin(request)
    name = checked_name(request.path_params["vc"])
    if name == DEFAULT:
        raise Forbidden("Update operation to default vc isn't allowed")
    return name


async def put_cluster(request: Request) -> Response:
    done = await put(request)
    verb = "Create" if done.created else "Update"
    return _created(f"{verb} virtual cluster {done.name} to capacity {done.capacity:g} successfully.")


async def put_status(request: Request) -> Response:
    name, status = await set_status(request)
    verb = "Stop" if status == "stopped" else "Activate"
    return _created(f"{verb} virtual cluster {name} successfully.")


async def delete_cluster(request: Request) -> Response:
    return _created(f"Remove virtual cluster {await remove(request)} successfully.")


def _created(message: str) -> Response:
    return json_response({"status": 201, "message": message}, 201)
