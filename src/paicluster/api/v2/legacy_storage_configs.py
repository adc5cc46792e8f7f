"""Routes of OpenPAI 0.x storage configs and storage servers.

The storages of the settings appear in this format. Administrators can store further records for clients
that connect to a server directly; these are not storages of the cluster, and jobs cannot mount them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import ConfigError, Conflict, Forbidden, NotFound, PaiError
from paicluster.api.context import Context, authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.request_fields import GROUPNAME, USERNAME, Fields, fields_of
from paicluster.api.responses import MAX_FIELDS_BYTES, json_response, mapping_of, read_body
from paicluster.services.storages import JOBS, StorageConfig, usable
from paicluster.store import storage_records as records
from paicluster.store.rows import UserGrants
from paicluster.store.storage_records import StorageRecord

log = logging.getLogger("paicluster.api")

CONFIG, SERVER = "config", "server"
# Name of the key field of a record.
_KEY_FIELD = {CONFIG: "name", SERVER: "spn"}
_PATTERN = {CONFIG: GROUPNAME, SERVER: USERNAME}
_TYPES = ("nfs", "samba", "azurefile", "azureblob", "hdfs")
# OpenPAI keeps a record of this name as a marker that it is initialized.
_RESERVED = "empty"

RecordJson = dict[str, Any]


# -- reading ---------------------------------------------------------------------------------------


async def list_configs(request: Request) -> Response:
    return json_response(await _select(request, await _configs(request)))


async def one_config(request: Request) -> Response:
    return json_response(_one(request, await _configs(request), "Config not found."))


async def list_servers(request: Request) -> Response:
    return json_response(await _select(request, await _servers(request)))


async def one_server(request: Request) -> Response:
    return json_response(_one(request, await _servers(request), "Server not found."))


async def _configs(request: Request) -> dict[str, RecordJson]:
    """Configs that the caller may use: of the settings, and stored ones."""
    access = (await authenticate(request)).access
    ctx = context(request)
    records_by_name = {
        storage.name: _as_config(storage, access) for storage in usable(ctx.storages(), access)
    }
    for record in await ctx.store.read(lambda conn: records.list_records(conn, CONFIG)):
        if access.may_use_storage(record.name, record.groups):
            records_by_name[record.name] = _unseal(ctx, record)
    return records_by_name


async def _servers(request: Request) -> dict[str, RecordJson]:
    """Servers of the configs that the caller may use; they contain passwords."""
    identity = await authenticate(request)
    ctx = context(request)
    records_by_name = {}
    for storage in usable(ctx.storages(), identity.access):
        try:
            records_by_name[storage.name] = _as_server(storage)
        except ConfigError as error:  # its credentials cannot be read: the other storages can be used
            log.warning("The storage %s is left out of the list: %s", storage.name, error)
    stored = await ctx.store.read(lambda conn: records.list_records(conn, SERVER))
    if stored:
        usable_servers: set[str] = set()
        for config in (await _configs(request)).values():
            usable_servers.update(config["servers"], (mount["server"] for mount in config["mountInfos"]))
        for record in stored:
            if identity.admin or record.name in usable_servers:
                records_by_name[record.name] = _unseal(ctx, record)
    return records_by_name


async def _select(request: Request, records_by_name: Mapping[str, RecordJson]) -> list[RecordJson]:
    """The records named in the query, or in the body of a POST by early clients; without names, all."""
    selected: Sequence[str] = request.query_params.getlist("names")
    if request.method == "POST":
        body = await read_body(request, MAX_FIELDS_BYTES)
        names = mapping_of(request, body).get("names") if body.strip() else None
        selected = [name for name in names if isinstance(name, str)] if isinstance(names, list) else ()
    return [record_json for name, record_json in records_by_name.items() if not selected or name in selected]


def _one(request: Request, records_by_name: Mapping[str, RecordJson], message: str) -> RecordJson:
    record_json = records_by_name.get(request.path_params["storage"])
    if record_json is None:
        # With status 500, as in OpenPAI.
        raise PaiError(message)
    return record_json


def _as_config(storage: StorageConfig, access: UserGrants) -> RecordJson:
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


def _as_server(storage: StorageConfig) -> RecordJson:
    if storage.url is not None:
        where = urlsplit(storage.url)
        port = where.port or (443 if where.scheme == "https" else 80)
        data: dict[str, Any] = {"namenode": where.hostname, "port": port, "webhdfs": storage.url}
        # Generations of clients read the host from different fields.
        data["address"] = where.hostname
        return {"spn": storage.name, "type": "hdfs", "data": data, "extension": {"webhdfs": port}}
    data = storage.data_with_secrets()
    if "accountKey" in data:
        data["key"] = data.pop("accountKey")  # its name in OpenPAI's older API
    if storage.type == "samba":
        server, _, path = str(data["address"]).strip("/").partition("/")
        data |= {"address": server, "rootPath": f"/{path}", "userName": data.pop("username", "")}
    elif storage.type == "azureFile":
        data |= {"dataStore": data["accountName"], "fileShare": data.pop("shareName")}
    elif storage.type == "nfs":
        data = {"address": data.get("server", ""), "rootPath": data.get("path", "")}
    return {"spn": storage.name, "type": storage.type.lower(), "data": data, "extension": {}}


# -- changes ---------------------------------------------------------------------------------------


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


def _config_of(fields: Fields) -> tuple[RecordJson, str | None]:
    """The record to store, and the group that owns it."""
    record_json: RecordJson = {
        "name": fields.text("name", pattern=GROUPNAME),
        "default": fields.flag("default", False),
        "servers": fields.names("servers", [], pattern=USERNAME),
        "mountInfos": [_mount_of(mount) for mount in fields.each("mountInfos", [])],
    }
    group = fields.text("gpn", pattern=GROUPNAME) if "gpn" in fields else None
    fields.end()
    return (record_json, None) if group is None else ({**record_json, "gpn": group}, group)


def _mount_of(fields: Fields) -> RecordJson:
    mount = {
        "mountPoint": fields.text("mountPoint", min_length=1),
        "path": fields.text("path", ""),
        "server": fields.text("server", pattern=USERNAME),
        "permission": fields.choice("permission", "rw", "ro") if "permission" in fields else "rw",
    }
    fields.end()
    return mount


def _server_of(fields: Fields) -> tuple[RecordJson, None]:
    record_json = {
        "spn": fields.text("spn", pattern=USERNAME),
        "type": fields.choice("type", *_TYPES),
        "data": fields.mapping("data"),
        "extension": fields.mapping("extension", {}),
    }
    fields.end()
    return record_json, None


async def _write(
    request: Request, kind: str, read: Callable[[Fields], tuple[RecordJson, str | None]], *, new: bool
) -> Response:
    await authenticate(request)
    ctx = context(request)
    record_json, group = read(await fields_of(request))
    name = str(record_json[_KEY_FIELD[kind]])
    set_subject(request, name)
    _require_editable(ctx, name, Conflict if new else Forbidden)
    if new and kind == CONFIG and name == JOBS:
        raise Forbidden(
            f"A storage cannot be called {JOBS}: in addresses that name means the files of jobs.",
            code="ForbiddenKeyError",
        )
    record = StorageRecord(
        kind, name, group, ctx.sealer.seal(json.dumps(record_json).encode(), _sealing_context(kind, name))
    )

    def write(conn: Connection) -> None:
        if new and not records.add_record(conn, record):
            raise Conflict(f"Storage {kind} {name} already exists.", code="ConflictStorageError")
        if not new and not records.update_record(conn, record):
            raise _not_found(kind, name)

    await ctx.store.write(write)
    return _success(kind, "created" if new else "updated")


async def _delete(request: Request, kind: str) -> Response:
    """The name is in the path, or in the body."""
    await authenticate(request)
    name = request.path_params.get("storage")
    if name is None:
        fields = await fields_of(request)
        name = fields.text(_KEY_FIELD[kind], pattern=_PATTERN[kind])
        set_subject(request, name)
    ctx = context(request)
    _require_editable(ctx, name, Forbidden)
    if not await ctx.store.write(lambda conn: records.delete_record(conn, kind, name)):
        raise _not_found(kind, name)
    return _success(kind, "deleted")


def _require_editable(ctx: Context, name: str, error_class: type[Conflict] | type[Forbidden]) -> None:
    if name == _RESERVED:
        raise Forbidden(
            f"Key {name} is system reserved and should not be modified!", code="ForbiddenKeyError"
        )
    if any(storage.name == name for storage in ctx.storages()):
        raise error_class(
            f"Storage {name} is defined in the cluster's settings.",
            code="ConflictStorageError" if error_class is Conflict else None,
            hint="Change it there, and restart the server.",
        )


def _not_found(kind: str, name: str) -> NotFound:
    return NotFound(f"Storage {kind} {name} is not found.", code="NoStorageError")


def _success(kind: str, verb: str) -> Response:
    return json_response({"message": f"Storage {kind.capitalize()} is {verb} successfully"}, 201)


def _unseal(ctx: Context, record: StorageRecord) -> RecordJson:
    record_json: RecordJson = json.loads(
        ctx.sealer.unseal(record.sealed, _sealing_context(record.kind, record.name))
    )
    return record_json


def _sealing_context(kind: str, name: str) -> str:
    return f"storage {kind} {name}"
