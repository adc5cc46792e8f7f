"""Routes of OpenPAI 0.x storage configs and storage servers.

The storages of the settings appear in this format. Administrators can store further records for clients
that connect to a server directly; these are not storages of the cluster, and jobs cannot mount them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import authenticate, caller
from paicluster.api.routing.authority import ADMINISTRATION, JOBS
from paicluster.api.routing.route import JSON, Body, Query, Routes
from paicluster.api.wire.base import Message
from paicluster.api.wire.clusters import (
    ConfigNameBody,
    LegacyStorageConfig,
    LegacyStorageServer,
    MountInfo,
    NewLegacyStorageConfig,
    NewLegacyStorageServer,
    ServerNameBody,
    StorageNamesBody,
)
from paicluster.api.wire.responses import encode
from paicluster.remote_storages.storages import JOBS as JOBS_STORAGE
from paicluster.remote_storages.storages import StorageConfig, usable
from paicluster.store import storage_records as records
from paicluster.store.rows import UserGrants
from paicluster.store.storage_records import StorageRecord
from paiprotocol.errors import ConfigError, Conflict, Forbidden, NotFound

route = Routes("storage")

_NAMES = (Query("names", list[str]),)
_JSON = Body(media=(JSON,))
_OPTIONAL_JSON = Body(media=(JSON,), required=False)

log = logging.getLogger("paicluster.api")

CONFIG, SERVER = "config", "server"
# OpenPAI keeps a record of this name as a marker that it is initialized.
_RESERVED = "empty"

Record = TypeVar("Record", LegacyStorageConfig, LegacyStorageServer)


# -- reading ---------------------------------------------------------------------------------------


@route(
    "GET /api/v2/storage/config",
    "GET|POST /api/v2/storage/configs",
    authority=JOBS,
    summary="List storage configs, legacy format",
    query=_NAMES,
    body=_OPTIONAL_JSON,
)
async def list_configs(request: Request, body: StorageNamesBody) -> list[LegacyStorageConfig]:
    return _select(request, body, await _configs(request))


@route(
    "GET /api/v2/storage/config/{storage}",
    authority=JOBS,
    summary="Get a storage config, legacy format",
)
async def one_config(request: Request) -> LegacyStorageConfig:
    await authenticate(request)
    return _one(request, await _configs(request), "Config not found.")


@route(
    "GET /api/v2/storage/server",
    "GET|POST /api/v2/storage/servers",
    authority=JOBS,
    summary="List storage servers, legacy format",
    query=_NAMES,
    body=_OPTIONAL_JSON,
)
async def list_servers(request: Request, body: StorageNamesBody) -> list[LegacyStorageServer]:
    return _select(request, body, await _servers(request))


@route(
    "GET /api/v2/storage/server/{storage}",
    authority=JOBS,
    summary="Get a storage server, legacy format",
)
async def one_server(request: Request) -> LegacyStorageServer:
    await authenticate(request)
    return _one(request, await _servers(request), "Server not found.")


async def _configs(request: Request) -> dict[str, LegacyStorageConfig]:
    """Configs that the caller may use: of the settings, and stored ones."""
    access = caller(request).access
    ctx = context(request)
    records_by_name = {
        storage.name: _as_config(storage, access) for storage in usable(ctx.files.storages, access)
    }
    for record in await ctx.store.read(lambda conn: records.list_records(conn, CONFIG)):
        if access.may_use_storage(record.name, record.groups):
            records_by_name[record.name] = _unseal(ctx, record, LegacyStorageConfig)
    return records_by_name


async def _servers(request: Request) -> dict[str, LegacyStorageServer]:
    """Servers of the configs that the caller may use; they contain passwords."""
    identity = caller(request)
    ctx = context(request)
    records_by_name = {}
    for storage in usable(ctx.files.storages, identity.access):
        try:
            records_by_name[storage.name] = _as_server(storage)
        except ConfigError as error:  # its credentials cannot be read: the other storages can be used
            log.warning("The storage %s is left out of the list: %s", storage.name, error)
    stored = await ctx.store.read(lambda conn: records.list_records(conn, SERVER))
    if stored:
        usable_servers: set[str] = set()
        for config in (await _configs(request)).values():
            usable_servers.update(config.servers, (mount.server for mount in config.mount_infos))
        for record in stored:
            if identity.admin or record.name in usable_servers:
                records_by_name[record.name] = _unseal(ctx, record, LegacyStorageServer)
    return records_by_name


def _select(request: Request, body: StorageNamesBody, records_by_name: Mapping[str, Record]) -> list[Record]:
    """The records named in the query, or in the body of a POST by early clients; without names, all."""
    is_post = request.method == "POST"
    selected = body.names or [] if is_post else request.query_params.getlist("names")
    return [record for name, record in records_by_name.items() if not selected or name in selected]


def _one(request: Request, records_by_name: Mapping[str, Record], message: str) -> Record:
    record = records_by_name.get(request.path_params["storage"])
    if record is None:
        # OpenPAI's status is 500, by mistake; its clients test only whether it is an error.
        raise NotFound(message)
    return record


def _as_config(storage: StorageConfig, access: UserGrants) -> LegacyStorageConfig:
    mount = MountInfo(
        mount_point=f"/mnt/{storage.name}",
        path="" if storage.share else "${PAI_USER_NAME}",
        server=storage.name,
        permission="ro" if storage.read_only else "rw",
    )
    return LegacyStorageConfig(storage.name, storage.is_default_of(access), [storage.name], [mount])


def _as_server(storage: StorageConfig) -> LegacyStorageServer:
    if storage.url is not None:
        where = urlsplit(storage.url)
        port = where.port or (443 if where.scheme == "https" else 80)
        data: dict[str, Any] = {"namenode": where.hostname, "port": port, "webhdfs": storage.url}
        # Generations of clients read the host from different fields.
        data["address"] = where.hostname
        return LegacyStorageServer(storage.name, "hdfs", data, {"webhdfs": port})
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
    return LegacyStorageServer(storage.name, storage.type.lower(), data, {})


# -- changes ---------------------------------------------------------------------------------------


@route(
    "POST /api/v2/storage/config",
    authority=ADMINISTRATION,
    summary="Create a legacy storage config",
    body=_JSON,
    status=201,
    errors=(409,),
)
async def create_config(request: Request, body: NewLegacyStorageConfig) -> Message:
    return await _write(request, _config_of(body), new=True)


@route(
    "PUT /api/v2/storage/config",
    authority=ADMINISTRATION,
    summary="Change a legacy storage config",
    body=_JSON,
    status=201,
    errors=(404,),
)
async def update_config(request: Request, body: NewLegacyStorageConfig) -> Message:
    return await _write(request, _config_of(body), new=False)


@route(
    "DELETE /api/v2/storage/config",
    authority=ADMINISTRATION,
    summary="Delete a legacy storage config",
    body=_OPTIONAL_JSON,
    status=201,
    errors=(404,),
)
async def delete_named_config(request: Request, body: ConfigNameBody) -> Message:
    set_subject(request, body.name)
    return await _delete(request, CONFIG, body.name)


@route(
    "DELETE /api/v2/storage/config/{storage}",
    authority=ADMINISTRATION,
    summary="Delete a legacy storage config",
    status=201,
)
async def delete_config(request: Request) -> Message:
    await authenticate(request)
    return await _delete(request, CONFIG, request.path_params["storage"])


@route(
    "POST /api/v2/storage/server",
    authority=ADMINISTRATION,
    summary="Create a legacy storage server",
    body=_JSON,
    status=201,
    errors=(409,),
)
async def create_server(request: Request, body: NewLegacyStorageServer) -> Message:
    return await _write(request, _server_of(body), new=True)


@route(
    "PUT /api/v2/storage/server",
    authority=ADMINISTRATION,
    summary="Change a legacy storage server",
    body=_JSON,
    status=201,
    errors=(404,),
)
async def update_server(request: Request, body: NewLegacyStorageServer) -> Message:
    return await _write(request, _server_of(body), new=False)


@route(
    "DELETE /api/v2/storage/server",
    authority=ADMINISTRATION,
    summary="Delete a legacy storage server",
    body=_OPTIONAL_JSON,
    status=201,
    errors=(404,),
)
async def delete_named_server(request: Request, body: ServerNameBody) -> Message:
    set_subject(request, body.spn)
    return await _delete(request, SERVER, body.spn)


@route(
    "DELETE /api/v2/storage/server/{storage}",
    authority=ADMINISTRATION,
    summary="Delete a legacy storage server",
    status=201,
)
async def delete_server(request: Request) -> Message:
    await authenticate(request)
    return await _delete(request, SERVER, request.path_params["storage"])


class _NewRecord(NamedTuple):
    kind: str
    name: str
    # The group that owns it.
    group: str | None
    value: LegacyStorageConfig | LegacyStorageServer


def _config_of(body: NewLegacyStorageConfig) -> _NewRecord:
    mounts = [
        MountInfo(one.mount_point, one.path or "", one.server, one.permission or "rw")
        for one in body.mount_infos or ()
    ]
    config = LegacyStorageConfig(body.name, body.default or False, body.servers or [], mounts, body.gpn)
    return _NewRecord(CONFIG, body.name, body.gpn or None, config)


def _server_of(body: NewLegacyStorageServer) -> _NewRecord:
    server = LegacyStorageServer(body.spn, body.type, body.data, body.extension or {})
    return _NewRecord(SERVER, body.spn, None, server)


async def _write(request: Request, record: _NewRecord, *, new: bool) -> Message:
    ctx = context(request)
    kind, name, group, value = record
    set_subject(request, name)
    _require_editable(ctx, name, Conflict if new else Forbidden)
    if new and kind == CONFIG and name == JOBS_STORAGE:
        raise Forbidden(
            f"A storage cannot be called {JOBS_STORAGE}: in addresses that name means the files of jobs.",
            code="ForbiddenKeyError",
        )
    sealed = ctx.identity.sealer.seal(encode(value), _sealing_context(kind, name))
    stored = StorageRecord(kind, name, group, sealed)

    def write(conn: Connection) -> None:
        if new and not records.add_record(conn, stored):
            raise Conflict(f"Storage {kind} {name} already exists.", code="ConflictStorageError")
        if not new and not records.update_record(conn, stored):
            raise _not_found(kind, name)

    await ctx.store.write(write)
    return _success(kind, "created" if new else "updated")


async def _delete(request: Request, kind: str, name: str) -> Message:
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
    if any(storage.name == name for storage in ctx.files.storages):
        raise error_class(
            f"Storage {name} is defined in the cluster's settings.",
            code="ConflictStorageError" if error_class is Conflict else None,
            hint="Change it there, and restart the server.",
        )


def _not_found(kind: str, name: str) -> NotFound:
    return NotFound(f"Storage {kind} {name} is not found.", code="NoStorageError")


def _success(kind: str, verb: str) -> Message:
    return Message(f"Storage {kind.capitalize()} is {verb} successfully")


def _unseal(ctx: Context, record: StorageRecord, kind: type[Record]) -> Record:
    sealed = ctx.identity.sealer.unseal(record.sealed, _sealing_context(record.kind, record.name))
    return msgspec.json.decode(sealed, type=kind)


def _sealing_context(kind: str, name: str) -> str:
    return f"storage {kind} {name}"
