"""Routes of storages: list and detail, for the caller."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.wire.clusters import StorageDetail, StorageList, StorageSummary
from paicluster.api.wire.query_parameters import bool_param
from paicluster.remote_storages.storages import StorageConfig, usable
from paicluster.store.rows import UserGrants
from paiprotocol.errors import Forbidden, NotFound

route = Routes("storage")


@route(
    "GET /api/v2/storages",
    authority=JOBS,
    summary="List the storages the caller may use",
    query=(Query("default", bool),),
)
async def list_storages(request: Request) -> StorageList:
    identity = await authenticate(request)
    storages = usable(context(request).files.storages, identity.access)
    if bool_param(request.query_params, "default"):
        storages = [storage for storage in storages if storage.is_default_of(identity.access)]
    return StorageList([StorageSummary(**_summary(storage, identity.access)) for storage in storages])


@route(
    "GET /api/v2/storages/{storage}",
    authority=JOBS,
    summary="Get a storage, with its credentials",
    query=(Query("secrets", bool, description="`false`: without the credentials."),),
)
async def one_storage(request: Request) -> StorageDetail:
    """A storage with its credentials, as in OpenPAI. Our addition: ``secrets=false`` leaves them out."""
    identity = await authenticate(request)
    storage = storage_named(request, identity.username, identity.access)
    is_public = request.query_params.get("secrets", "").lower() == "false"
    data = dict(storage.data) if is_public else storage.data_with_secrets()
    return StorageDetail(
        **_summary(storage, identity.access),
        type=storage.type,
        data={**data, **({} if storage.url is None else {"url": storage.url})},
        read_only=storage.read_only,
        mount_options=[],
    )


def storage_named(request: Request, username: str, access: UserGrants) -> StorageConfig:
    """The storage of the route, if the user may use it."""
    name = request.path_params["storage"]
    storage = next((one for one in context(request).files.storages if one.name == name), None)
    if storage is None:
        raise NotFound(f"Storage {name} is not found.", code="NoStorageError")
    if not storage.is_usable_by(access):
        raise Forbidden(f"User {username} is not allowed to access {name}.")
    return storage


def _summary(storage: StorageConfig, access: UserGrants) -> dict[str, Any]:
    """Fields of a `StorageSummary`, which a `StorageDetail` has, too."""
    return {
        "name": storage.name,
        "share": storage.share,
        "volume_name": storage.name,
        "default": storage.is_default_of(access),
    }
