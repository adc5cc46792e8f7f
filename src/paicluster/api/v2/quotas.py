"""Routes of quotas: their use, and changes by administrators."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters
from paicluster.api.authority import NOT_ADMIN
from paicluster.api.context import authenticate, context
from paicluster.api.request_fields import fields_of
from paicluster.api.responses import json_response
from paicluster.api.v2.groups import no_group
from paicluster.auth.users import user_not_found
from paicluster.services.quotas import Kind, QuotaReport
from paicluster.store import groups, users

# Names of the limits in the API, and their columns.
LIMITS = {
    "tasks": "tasks",
    "cpu": "cpu",
    "memoryMB": "memory_mb",
    "gpu": "gpu",
    "storageBytes": "storage_bytes",
}
# What the database can store of each.
_MAX_LIMIT = (1 << 53) - 1


async def own_quotas(request: Request) -> Response:
    """Use of the caller's quota, and of those of the caller's groups."""
    identity = await authenticate(request)
    reports = await context(request).user_quotas.reports(identity.username)
    return json_response({"quotas": [_json(report) for report in reports]})


async def user_quota(request: Request) -> Response:
    username = request.path_params["user"]
    identity = await authenticate(request)
    if identity.username != username and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    await _require(request, "user", username)
    return json_response(_json(await context(request).user_quotas.report("user", username)))


async def group_quota(request: Request) -> Response:
    groupname = request.path_params["group"]
    identity = await authenticate(request)
    if groupname not in identity.access.groups and not identity.admin:
        raise Forbidden(NOT_ADMIN)
    await _require(request, "group", groupname)
    return json_response(_json(await context(request).user_quotas.report("group", groupname)))


async def set_user_quota(request: Request) -> Response:
    return await _set(request, "user", request.path_params["user"])


async def set_group_quota(request: Request) -> Response:
    return await _set(request, "group", request.path_params["group"])


async def _set(request: Request, kind: Kind, name: str) -> Response:
    """Set the limits that are sent and keep the others; null removes a limit."""
    await authenticate(request)
    fields = await fields_of(request)
    limits = {
        column: fields.whole_number_or_null(key, maximum=_MAX_LIMIT)
        for key, column in LIMITS.items()
        if key in fields
    }
    fields.end()
    if not limits:
        raise InvalidParameters(f"There is no limit to set: send some of {', '.join(LIMITS)}.")
    await _require(request, kind, name)
    await context(request).user_quotas.change(kind, name, limits)
    return json_response({"message": f"The quota of {kind} {name} is set."}, 201)


async def _require(request: Request, kind: Kind, name: str) -> None:
    store = context(request).store
    if kind == "user":
        if await store.read(lambda conn: users.get_user(conn, name)) is None:
            raise user_not_found(name)
    elif await store.read(lambda conn: groups.get_group(conn, name)) is None:
        raise no_group(name)


def _json(report: QuotaReport) -> dict[str, Any]:
    amounts = {key: getattr(report, column) for key, column in LIMITS.items()}
    resources = {key: {"used": used, "limit": limit} for key, (used, limit) in amounts.items()}
    return {"kind": report.kind, "name": report.name, "resources": resources}
