"""Routes of groups: list, create, change, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters
from paicluster.api.context import authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.request_fields import GROUPNAME, fields_of
from paicluster.api.responses import json_response, page_params
from paicluster.store import groups
from paicluster.store.rows import GroupRow


async def list_groups(request: Request) -> Response:
    """All groups, by name. ``offset`` and ``limit`` are our addition: OpenPAI always returns all."""
    await authenticate(request)
    offset, limit = page_params(request)
    rows = await context(request).store.read(
        lambda conn: groups.list_groups(conn, offset=offset, limit=limit)
    )
    return json_response([_group_json(row) for row in rows])


async def one_group(request: Request) -> Response:
    await authenticate(request)
    groupname = request.path_params["group"]
    row = await context(request).store.read(lambda conn: groups.get_group(conn, groupname))
    if row is None:
        raise no_group(groupname)
    return json_response(_group_json(row))


async def members(request: Request) -> Response:
    """Members of a group; an unknown group has none."""
    await authenticate(request)
    groupname = request.path_params["group"]
    offset, limit = page_params(request)
    found = await context(request).store.read(
        lambda conn: groups.members_of(conn, groupname, offset=offset, limit=limit)
    )
    return json_response([{"username": name, "clusterAdmin": admin} for name, admin in found])


def _group_json(row: GroupRow) -> dict[str, Any]:
    return {
        "groupname": row.groupname,
        "description": row.description,
        "externalName": row.external_name,
        "extension": groups.extension_of(row),
    }


async def create_group(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    groupname = fields.text("groupname", pattern=GROUPNAME)
    description = fields.text("description", "")
    external_name = fields.text("externalName", "")
    extension = _validate_extension(fields.mapping("extension", {}))
    fields.end()
    set_subject(request, groupname)
    await context(request).store.write(
        lambda conn: groups.add_group(
            conn, groupname, description=description, external_name=external_name, extension=extension
        )
    )
    return json_response({"message": "group is created successfully"}, 201)


async def update_group(request: Request) -> Response:
    """Change a group: with ``patch`` only the fields sent, else all; the extension key by key."""
    await authenticate(request)
    fields = await fields_of(request)
    patch = fields.flag("patch", False)
    data = fields.inner("data")
    fields.end()
    groupname = data.text("groupname", pattern=GROUPNAME)
    columns: dict[str, Any] = {}
    if not patch or "description" in data:
        columns["description"] = data.text("description")
    if not patch or "externalName" in data:
        columns["external_name"] = data.text("externalName")
    extension = _validate_extension(data.mapping("extension")) if not patch or "extension" in data else None
    data.end()
    set_subject(request, groupname)
    await _change(request, groupname, columns, lambda old: {**old, **extension} if extension else old)
    return json_response({"message": f"update group {groupname} successfully."}, 201)


async def delete_group(request: Request) -> Response:
    await authenticate(request)
    groupname = request.path_params["group"]
    if not await context(request).store.write(lambda conn: groups.delete_group(conn, groupname)):
        raise no_group(groupname)
    await context(request).user_quotas.reload()
    return json_response({"message": "group is removed successfully"})


# -- single properties ----------------------------------------------------------------------------


async def update_extension(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    extension = _validate_extension(fields.mapping("extension"))
    fields.end()
    await _change(request, request.path_params["group"], {}, lambda old: {**old, **extension})
    return json_response({"message": "update group extension data successfully."}, 201)


async def update_extension_at(request: Request) -> Response:
    """Set the value at a path of the extension, such as `acls/virtualClusters`."""
    await authenticate(request)
    fields = await fields_of(request)
    data = fields.any("data")
    fields.end()
    keys = request.path_params["path"].split("/")

    def put(old: dict[str, Any]) -> dict[str, Any]:
        changed = inner = dict(old)
        for key in keys[:-1]:
            below = inner.get(key)
            inner[key] = dict(below) if isinstance(below, dict) else {}
            inner = inner[key]
        inner[keys[-1]] = data
        return _validate_extension(changed)

    await _change(request, request.path_params["group"], {}, put)
    return json_response({"message": "Update group extension data successfully."}, 201)


async def update_description(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    description = fields.text("description")
    fields.end()
    await _change(request, request.path_params["group"], {"description": description})
    return json_response({"message": "update group description data successfully."}, 201)


async def update_external_name(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    external_name = fields.text("externalName")
    fields.end()
    await _change(request, request.path_params["group"], {"external_name": external_name})
    return json_response({"message": "update group externalNameData data successfully."}, 201)


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


def _validate_extension(extension: dict[str, Any]) -> dict[str, Any]:
    """Check the types in `acls`: permissions are read from it on every request."""
    if "acls" not in extension:
        return extension
    acls = extension["acls"]
    if not isinstance(acls, dict):
        raise InvalidParameters('"extension.acls" must be an object')
    if not isinstance(acls.get("admin", False), bool):
        raise InvalidParameters('"extension.acls.admin" must be a boolean')
    for key in ("virtualClusters", "storageConfigs"):
        value = acls.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InvalidParameters(f'"extension.acls.{key}" must be an array of strings')
    return extension


def no_group(groupname: str) -> InvalidParameters:
    # 400 and not 404, as in OpenPAI.
    return InvalidParameters(f"Group {groupname} is not found.", code="NoGroupError")
