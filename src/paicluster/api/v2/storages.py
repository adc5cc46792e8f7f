"""Storages: which there are for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, NotFound
from paicluster.api.context import Context, authenticate, context
from paicluster.api.responses import json_response
from paicluster.auth.tokens import Identity
from paicluster.config.sections import StorageSettings
from paicluster.store.rows import UserGrants


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """A place for files. ``type`` and ``data`` are those of a StorageDetail; ``url`` is its WebHDFS address.

    Without ``groups`` it is everybody's.
    """

    name: str
    type: str = "other"
    data: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    share: bool = True
    read_only: bool = False
    groups: tuple[str, ...] = ()
    default: bool = False

    def open_to(self, access: UserGrants) -> bool:
        return access.may_use_storage(self.name, self.groups)


OWN = "home"


def of_settings(given: Sequence[StorageSettings], url: str) -> tuple[StorageConfig, ...]:
    """The storages that the settings list; without any, the one the cluster itself serves at ``url``."""
    own = f"{url}/webhdfs"
    if not given:
        return (StorageConfig(OWN, url=own, default=True),)
    return tuple(
        StorageConfig(
            one.name,
            "nfs" if one.kind == "mount" else "other",
            {"server": "", "path": str(one.path)} if one.kind == "mount" else {},
            {"own": own, "hdfs": one.url}.get(one.kind),
            one.share,
            one.read_only,
            one.groups,
            default=place == 0,
        )
        for place, one in enumerate(given)
    )


def usable(ctx: Context, access: UserGrants) -> list[StorageConfig]:
    """The storages somebody may use."""
    return [storage for storage in ctx.storages() if storage.open_to(access)]


def is_default(storage: StorageConfig, access: UserGrants) -> bool:
    return storage.default or storage.name in access.default_storages


async def list_storages(request: Request) -> Response:
    identity = await authenticate(request)
    found = usable(context(request), identity.access)
    if request.query_params.get("default", "").lower() == "true":
        found = [storage for storage in found if is_default(storage, identity.access)]
    return json_response({"storages": [_summary(storage, identity.access) for storage in found]})


async def one_storage(request: Request) -> Response:
    identity = await authenticate(request)
    storage = _named(request, identity, request.path_params["storage"])
    shown = {
        **_summary(storage, identity.access),
        "type": storage.type,
        "data": {**storage.data, **({} if storage.url is None else {"url": storage.url})},
        "readOnly": storage.read_only,
        "mountOptions": [],
    }
    return json_response(shown)


def _named(request: Request, identity: Identity, name: str) -> StorageConfig:
    ctx = context(request)
    storage = next((one for one in ctx.storages() if one.name == name), None)
    if storage is None:
        raise NotFound(f"Storage {name} is not found.", code="NoStorageError")
    if not storage.open_to(identity.access):
        raise Forbidden(f"User {identity.username} is not allowed to access {name}.")
    return storage


def _summary(storage: StorageConfig, access: UserGrants) -> dict[str, Any]:
    return {
        "name": storage.name,
        "share": storage.share,
        "volumeName": storage.name,
        "default": is_default(storage, access),
    }
