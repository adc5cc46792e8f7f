"""Storages in the form of the years before 1.0: configs, which name servers.

Those of the settings are shown in it. Others can be written down, for clients that reach a server by
themselves; they are no storages of the cluster's own, and jobs cannot have them mounted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Conflict, Forbidden, NotFound, PaiError
from paicluster.api.context import Context, authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.permissions import authenticate_admin
from paicluster.api.request_fields import GROUPNAME, USERNAME, Fields, fields_of
from paicluster.api.responses import json_response, mapping_of, read_body
from paicluster.services.storages import StorageConfig, usable
from paicluster.store import storage_records as records
from paicluster.store.rows import UserGrants
from paicluster.store.storage_records import StorageRecord

CONFIG, SERVER = "config", "server"
# What the key of a record is called.
_KEY = {CONFIG: "name", SERVER: "spn"}
_PATTERN = {CONFIG: GROUPNAME, SERVER: USERNAME}
_TYPES = ("nfs", "samba", "azurefile", "azureblob", "hdfs")
# The original has a record of this name to know that it was set up.
_RESERVED = "empty"

Shown = dict[str, Any]


# -- looking ---------------------------------------------------------------------------------------


async def list_configs(request: Request) -> Response:
    return json_response(await _wanted(request, await _configs(request)))


async def one_config(request: Request) -> Response:
    return json_response(_one(request, await _configs(request), "Config not found."))


async def list_servers(request: Request) -> Response:
    return json_response(await _wanted(request, await _servers(request)))


async def one_server(request: Request) -> Response:
    return json_response(_one(request, await _servers(request), "Server not found."))


async def _configs(request: Request) -> dict[str, Shown]:
    """What somebody may use: of the settings, and of what was written down."""
    access = (await authenticate(request)).access
    ctx = context(request)
    found = {storage.name: _as_config(storage, access) for storage in usable(ctx.storages(), access)}
    for record in await ctx.store.read(lambda conn: records.list_records(conn, CONFIG)):
        if access.may_use_storage(record.name, record.groups):
            found[record.name] = _opened(ctx, record)
    return found


async def _servers(request: Request) -> dict[str, Shown]:
    """Those of the configs that somebody may use; there are passwords in them."""
    identity = await authenticate(request)
    ctx = context(request)
    found = {storage.name: _as_server(storage) for storage in usable(ctx.storages(), identity.access)}
    written = await ctx.store.read(lambda conn: records.list_records(conn, SERVER))
    if written:
        named: set[str] = set()
        for config in (await _configs(request)).values():
            named.update(config["servers"], (mount["server"] for mount in config["mountInfos"]))
        for record in written:
            if identity.admin or record.name in named:
                found[record.name] = _opened(ctx, record)
    return found


async def _wanted(request: Request, found: Mapping[str, Shown]) -> list[Shown]:
    """The names asked for: in the address, or in the body of the first clients' POST. None means all."""
    wanted: Sequence[str] = request.query_params.getlist("names")
    if request.method == "POST":
        body = await read_body(request, 1 << 20)
        names = mapping_of(request, body).get("names") if body.strip() else None
        wanted = [name for name in names if isinstance(name, str)] if isinstance(names, list) else ()
    return [shown for name, shown in found.items() if not wanted or name in wanted]


def _one(request: Request, found: Mapping[str, Shown], otherwise: str) -> Shown:
    shown = found.get(request.path_params["storage"])
    if shown is None:
        # With 500, as the original has it.
        raise PaiError(otherwise)
    return shown


def _as_config(storage: StorageConfig, access: UserGrants) -> Shown:
    mount = {
        "mountPoint": f"/mnt/{storage.name}",
        "path": "" if storage.share else "${PAI_USER_NAME}",
        "server": storage.name,
        "permission": "ro" if storage.read_only else "rw",
    }
    return {
        "name": storage.name,
        "default": storage.is_default_of(access),
        "servers": [storage.name],
        "mountInfos": [mount],
    }


def _as_server(storage: StorageConfig) -> Shown:
    if storage.url is not None:
        where = urlsplit(storage.url)
        port = where.port or (443 if where.scheme == "https" else 80)
        data: dict[str, Any] = {"namenode": where.hostname, "port": port, "webhdfs": storage.url}
        # Each generation of clients looks elsewhere for the same thing.
        data["address"] = where.hostname
        return {"spn": storage.name, "type": "hdfs", "data": data, "extension": {"webhdfs": port}}
    data = dict(storage.data)
    if storage.type == "nfs":
        data = {"address": data.get("server", ""), "rootPath": data.get("path", "")}
    return {"spn": storage.name, "type": storage.type.lower(), "data": data, "extension": {}}


# -- writing down ----------------------------------------------------------------------------------


async def create_config(request: Request) -> Response:
    return await _write(request, CONFIG, _config_of, new=True)


async def update_config(request: Request) -> Response:
    return await _write(request, CONFIG, _config_of, new=False)


async def delete_config(request: Request) -> Response:
    return await _delete(request, CONFIG)


async def create_server(request: Request) -> Response:
    return await _write(request, SERVER, _server_of, new=True)


async def update_server(request: Request) -> Response:
    return await _write(request, SERVER, _server_of, new=False)


async def delete_server(request: Request) -> Response:
    return await _delete(request, SERVER)


def _config_of(given: Fields) -> tuple[Shown, str | None]:
    """What is to be written down, and whose it is."""
    shown: Shown = {
        "name": given.text("name", pattern=GROUPNAME),
        "default": given.flag("default", False),
        "servers": given.names("servers", [], pattern=USERNAME),
        "mountInfos": [_mount_of(mount) for mount in given.each("mountInfos", [])],
    }
    group = given.text("gpn", pattern=GROUPNAME) if "gpn" in given else None
    given.end()
    return (shown, None) if group is None else ({**shown, "gpn": group}, group)


def _mount_of(given: Fields) -> Shown:
    mount = {
        "mountPoint": given.text("mountPoint", min_length=1),
        "path": given.text("path", ""),
        "server": given.text("server", pattern=USERNAME),
        "permission": given.choice("permission", "rw", "ro") if "permission" in given else "rw",
    }
    given.end()
    return mount


def _server_of(given: Fields) -> tuple[Shown, None]:
    shown = {
        "spn": given.text("spn", pattern=USERNAME),
        "type": given.choice("type", *_TYPES),
        "data": given.mapping("data"),
        "extension": given.mapping("extension", {}),
    }
    given.end()
    return shown, None


async def _write(
    request: Request, kind: str, read: Callable[[Fields], tuple[Shown, str | None]], *, new: bool
) -> Response:
    await authenticate_admin(request)
    ctx = context(request)
    shown, group = read(await fields_of(request))
    name = str(shown[_KEY[kind]])
    set_subject(request, name)
    _require_editable(ctx, name, Conflict if new else Forbidden)
    record = StorageRecord(kind, name, group, ctx.sealer.seal(json.dumps(shown).encode(), _what(kind, name)))

    def write(conn: Connection) -> None:
        if new and not records.add_record(conn, record):
            raise Conflict(f"Storage {kind} {name} already exists.", code="ConflictStorageError")
        if not new and not records.update_record(conn, record):
            raise _not_there(kind, name)

    await ctx.store.write(write)
    return _done(kind, "created" if new else "updated")


async def _delete(request: Request, kind: str) -> Response:
    """Named in the address, or in the body as what is made is."""
    await authenticate_admin(request)
    name = request.path_params.get("storage")
    if name is None:
        given = await fields_of(request)
        name = given.text(_KEY[kind], pattern=_PATTERN[kind])
        set_subject(request, name)
    ctx = context(request)
    _require_editable(ctx, name, Forbidden)
    if not await ctx.store.write(lambda conn: records.delete_record(conn, kind, name)):
        raise _not_there(kind, name)
    return _done(kind, "deleted")


def _require_editable(ctx: Context, name: str, refusal: type[Conflict] | type[Forbidden]) -> None:
    if name == _RESERVED:
        raise Forbidden(
            f"Key {name} is system reserved and should not be modified!", code="ForbiddenKeyError"
        )
    if any(storage.name == name for storage in ctx.storages()):
        raise refusal(
            f"Storage {name} is described in the cluster's settings.",
            code="ConflictStorageError" if refusal is Conflict else None,
            hint="Change it there, and start the server anew.",
        )


def _not_there(kind: str, name: str) -> NotFound:
    return NotFound(f"Storage {kind} {name} is not found.", code="NoStorageError")


def _done(kind: str, verb: str) -> Response:
    return json_response({"message": f"Storage {kind.capitalize()} is {verb} successfully"}, 201)


def _opened(ctx: Context, record: StorageRecord) -> Shown:
    shown: Shown = json.loads(ctx.sealer.unseal(record.sealed, _what(record.kind, record.name)))
    return shown


def _what(kind: str, name: str) -> str:
    return f"storage {kind} {name}"
