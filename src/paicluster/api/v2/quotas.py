"""Routes of quotas: their use, and changes by administrators."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMINISTRATION, CLUSTER, JOBS, NOT_ADMIN
from paicluster.api.routing.route import Routes
from paicluster.api.v2.groups import no_group
from paicluster.api.wire.base import Message
from paicluster.api.wire.users import QuotaAmount, QuotaBody, QuotaDetails, QuotaList, QuotaResources
from paicluster.auth.users import user_not_found
from paicluster.services.quota_reports import QuotaReport
from paicluster.services.user_quotas import Kind
from paicluster.store import groups, users
from paiprotocol.errors import Forbidden, InvalidParameters

route = Routes("quota")


@route(
    "GET /api/v2/quota",
    authority=JOBS,
    summary="Use of the caller's quota and of those of the caller's groups",
)
async def own_quotas(request: Request) -> QuotaList:
    """Use of the caller's quota, and of those of the caller's groups."""
    identity = await authenticate(request)
    reports = await context(request).capacity.quota_reports.of_user(identity.username)
    return QuotaList([_details(report) for report in reports])


@route(
    "GET /api/v2/(users|user)/{user}/quota",
    authority=CLUSTER,
    summary="Use of a user's quota",
)
async def user_quota(request: Request) -> QuotaDetails:
    username = request.path_params["user"]
    identity = await authenticate(request)
    if identity.username != username and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    await _require(request, "user", username)
    return _details(await context(request).capacity.quota_reports.report("user", username))


@route(
    "GET /api/v2/(groups|group)/{group}/quota",
    authority=CLUSTER,
    summary="Use of a group's quota",
    errors=(400,),
)
async def group_quota(request: Request) -> QuotaDetails:
    groupname = request.path_params["group"]
    identity = await authenticate(request)
    if groupname not in identity.access.groups and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    await _require(request, "group", groupname)
    return _details(await context(request).capacity.quota_reports.report("group", groupname))


@route(
    "PUT /api/v2/(users|user)/{user}/quota",
    authority=ADMINISTRATION,
    summary="Set limits of a user's quota",
    status=201,
)
async def set_user_quota(request: Request, body: QuotaBody) -> Message:
    return await _set(request, "user", request.path_params["user"], body)


@route(
    "PUT /api/v2/(groups|group)/{group}/quota",
    authority=ADMINISTRATION,
    summary="Set limits of a group's quota",
    status=201,
)
async def set_group_quota(request: Request, body: QuotaBody) -> Message:
    return await _set(request, "group", request.path_params["group"], body)


async def _set(request: Request, kind: Kind, name: str, body: QuotaBody) -> Message:
    """Set the limits that are sent and keep the others; null removes a limit."""
    limits = {
        column: limit for column, limit in msgspec.structs.asdict(body).items() if limit is not msgspec.UNSET
    }
    if not limits:
        names = ", ".join(QuotaBody.__struct_encode_fields__)
        raise InvalidParameters(f"There is no limit to set: send some of {names}.")
    await _require(request, kind, name)
    await context(request).capacity.user_quotas.change(kind, name, limits)
    return Message(f"The quota of {kind} {name} is set.")


async def _require(request: Request, kind: Kind, name: str) -> None:
    store = context(request).store
    if kind == "user":
        if await store.read(lambda conn: users.get_user(conn, name)) is None:
            raise user_not_found(name)
    elif await store.read(lambda conn: groups.get_group(conn, name)) is None:
        raise no_group(name)


def _details(report: QuotaReport) -> QuotaDetails:
    resources = QuotaResources(
        tasks=QuotaAmount(*report.tasks),
        cpu=QuotaAmount(*report.cpu),
        memory_mb=QuotaAmount(*report.memory_mb),
        gpu=QuotaAmount(*report.gpu),
        storage_bytes=QuotaAmount(*report.storage_bytes),
    )
    return QuotaDetails(report.kind, report.name, resources)
