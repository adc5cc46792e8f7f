"""Routes of storages: list and detail, for the caller."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, NotFound
from paicluster.api.context import authenticate, context
from paicluster.api.responses import bool_param, json_response
from paicluster.services.storages import StorageConfig, usable
from paicluster.store.rows import UserGrants


async def list_storages(request: Request) -> Response:
    identity = await authenticate(request)
    storages = usable(context(request).storages(), identity.access)
    if bool_param(request.query_params, "default"):
        storages = [storage for storage in storages if storage.is_default_of(identity.access)]
    return json_response({"storages": [_summary(storage, identity.access) for storage in storages]})


async def one_storage(request: Request) -> Response:
    """A storage with its credentials, as in OpenPAI. Our addition: ``secrets=false`` leaves them out."""
    identity = await authenticate(request)
    storage = storage_named(request, identity.username, identity.access)
    is_public = request.query_params.get("secrets", "").lower() == "false"
    data = dict(storage.data) if is_public else storage.data_with_secrets()
    detail = {
        **_summary(storage, identity.access),
        "type": storage.type,
        "data": {**data, **({} if storage.url is None else {"url": storage.url})},
        "readOnly": storage.read_only,
        "mountOptions": [],
    }
    return json_response(detail)


def storage_named(request: Request, username: str, access: UserGrants) -> StorageConfig:
    """The storage of the route, if the user may use it."""
    name = request.path_params["storage"]
    storage = next((one for one in context(request).storages() if one.name == name), None)
    if storage is None:
        raise NotFound(f"Storage {name} is not found.", code="NoStorageError")
    if not storage.is_usable_by(access):
        raise Forbidden(f"User {username} is not allowed to access {name}.")
    return storage


def _summary(storage: StorageConfig, access: UserGrants) -> dict[str, Any]:
    return {
        "name": storage.name,
        "share": storage.share,
        "volumeName": storage.name,
        "default": storage.is_default_of(access),
    }
