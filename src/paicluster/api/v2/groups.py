"""Routes of groups: list, create, change, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMIN_READS, ADMINISTRATION, CLUSTER
from paicluster.api.routing.route import PAGE, Routes
from paicluster.api.wire.base import Message
from paicluster.api.wire.query_parameters import page_params
from paicluster.api.wire.users import (
    DescriptionBody,
    ExtensionValueBody,
    ExternalNameBody,
    Group,
    GroupChange,
    GroupExtensionBody,
    Member,
    NewGroup,
    check_group_extension,
)
from paicluster.store import groups
from paicluster.store.rows import GroupRow
from paiprotocol.errors import InvalidParameters

route = Routes("group")


@route(
    "GET /api/v2/(groups|group)",
    authority=CLUSTER,
    summary="List groups",
    query=PAGE,
)
async def list_groups(request: Request) -> list[Group]:
    """All groups, by name. ``offset`` and ``limit`` are our addition: OpenPAI always returns all."""
    await authenticate(request)
    offset, limit = page_params(request)
    rows = await context(request).store.read(
        lambda conn: groups.list_groups(conn, offset=offset, limit=limit)
    )
    return [_group(row) for row in rows]


@route(
    "GET /api/v2/(groups|group)/{group}",
    authority=CLUSTER,
    summary="Get a group",
    errors=(400,),
)
async def one_group(request: Request) -> Group:
    await authenticate(request)
    groupname = request.path_params["group"]
    row = await context(request).store.read(lambda conn: groups.get_group(conn, groupname))
    if row is None:
        raise no_group(groupname)
    return _group(row)


@route(
    "GET /api/v2/(groups|group)/{group}/userlist",
    authority=ADMIN_READS,
    summary="List the members of a group",
    query=PAGE,
)
async def members(request: Request) -> list[Member]:
    """Members of a group; an unknown group has none."""
    await authenticate(request)
    groupname = request.path_params["group"]
    offset, limit = page_params(request)
    rows = await context(request).store.read(
        lambda conn: groups.members_of(conn, groupname, offset=offset, limit=limit)
    )
    return [Member(name, is_admin) for name, is_admin in rows]


def _group(row: GroupRow) -> Group:
    return Group(row.groupname, row.description, row.external_name, groups.extension_of(row))


@route(
    "POST /api/v2/(groups|group)",
    authority=ADMINISTRATION,
    summary="Create a group",
    status=201,
    errors=(409,),
)
async def create_group(request: Request, group: NewGroup) -> Message:
    set_subject(request, group.groupname)
    await context(request).store.write(
        lambda conn: groups.add_group(
            conn,
            group.groupname,
            description=group.description or "",
            external_name=group.external_name or "",
            extension=group.extension or {},
        )
    )
    return Message("group is created successfully")


@route(
    "PUT /api/v2/(groups|group)",
    authority=ADMINISTRATION,
    summary="Change a group",
    status=201,
)
async def update_group(request: Request, change: GroupChange) -> Message:
    """Change a group: with ``patch`` only the fields sent, else all; the extension key by key."""
    data = change.data
    columns = {"description": data.description, "external_name": data.external_name}
    sent = {column: value for column, value in columns.items() if value is not UNSET}
    extension = data.extension or {}
    set_subject(request, data.groupname)
    await _change(request, data.groupname, sent, lambda old: {**old, **extension})
    return Message(f"update group {data.groupname} successfully.")


@route(
    "DELETE /api/v2/(groups|group)/{group}",
    authority=ADMINISTRATION,
    summary="Delete a group",
    errors=(400,),
)
async def delete_group(request: Request) -> Message:
    await authenticate(request)
    groupname = request.path_params["group"]
    if not await context(request).store.write(lambda conn: groups.delete_group(conn, groupname)):
        raise no_group(groupname)
    await context(request).capacity.user_quotas.reload()
    return Message("group is removed successfully")


# -- single properties ----------------------------------------------------------------------------


@route(
    "PUT /api/v2/(groups|group)/{group}/extension",
    authority=ADMINISTRATION,
    summary="Change a group's extension",
    status=201,
)
async def update_extension(request: Request, body: GroupExtensionBody) -> Message:
    await _change(request, request.path_params["group"], {}, lambda old: {**old, **body.extension})
    return Message("update group extension data successfully.")


@route(
    "PUT /api/v2/(groups|group)/{group}/extension/{path:path}",
    authority=ADMINISTRATION,
    summary="Set one value in a group's extension",
    status=201,
)
async def update_extension_at(request: Request, value: ExtensionValueBody) -> Message:
    """Set the value at a path of the extension, such as `acls/virtualClusters`."""
    keys = request.path_params["path"].split("/")

    def put(old: dict[str, Any]) -> dict[str, Any]:
        changed = inner = dict(old)
        for key in keys[:-1]:
            below = inner.get(key)
            inner[key] = dict(below) if isinstance(below, dict) else {}
            inner = inner[key]
        inner[keys[-1]] = value.data
        return check_group_extension(changed)

    await _change(request, request.path_params["group"], {}, put)
    return Message("Update group extension data successfully.")


@route(
    "PUT /api/v2/(groups|group)/{group}/description",
    authority=ADMINISTRATION,
    summary="Change a group's description",
    status=201,
)
async def update_description(request: Request, body: DescriptionBody) -> Message:
    await _change(request, request.path_params["group"], {"description": body.description})
    return Message("update group description data successfully.")


@route(
    "PUT /api/v2/(groups|group)/{group}/externalname",
    authority=ADMINISTRATION,
    summary="Change a group's external name",
    status=201,
)
async def update_external_name(request: Request, body: ExternalNameBody) -> Message:
    await _change(request, request.path_params["group"], {"external_name": body.external_name})
    return Message("update group externalNameData data successfully.")


async def _change(
    request: Request,
    groupname: str,
    columns: dict[str, Any],
    extension: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    def write(conn: Connection) -> None:
        row = groups.get_group(conn, groupname)
        if row is None:
            raise no_group(groupname)
        changes = dict(columns)
        if extension is not None:
            changes["extension"] = extension(groups.extension_of(row))
        groups.update_group(conn, groupname, **changes)

    await context(request).store.write(write)


def no_group(groupname: str) -> InvalidParameters:
    # 400 and not 404, as in OpenPAI.
    return InvalidParameters(f"Group {groupname} is not found.", code="NoGroupError")
