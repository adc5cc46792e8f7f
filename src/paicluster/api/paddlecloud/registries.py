"""Routes of a user's image registries: their credentials, with which jobs pull images."""

from __future__ import annotations

import time

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cluster_objects import timestamp
from paicluster.api.paddlecloud.job_translation import RegistryCredentials, namespace_of
from paicluster.api.paddlecloud.replies import SUCCESS, replying
from paicluster.api.requests.authentication import caller
from paicluster.api.routing.authority import CLUSTER
from paicluster.api.routing.route import JSON, Body, Routes
from paicluster.api.wire.paddlecloud import (
    PaddleRegistries,
    PaddleRegistryBody,
    PaddleRegistryName,
    PaddleReply,
    PaddleSecret,
    PaddleUnauthorized,
    SecretMetadata,
    Secrets,
)
from paicluster.store import user_records
from paicluster.store.user_records import UserRecord
from paiprotocol.errors import InvalidParameters, NotFound

route = Routes("paddlecloud", returns={401: PaddleUnauthorized}, around=replying)

KIND = "registry"
PREFIX = "pcloud-registry-"
"""Clients put it before the names of registries, and show only names that have it."""
MAX_REGISTRIES = 100
"""Registries of a user."""

_BODY = Body(media=(JSON,), may_be_empty=False)


@route(
    "GET /api/v1/registry",
    authority=CLUSTER,
    summary="List image registries",
)
async def list_registries(request: Request) -> PaddleRegistries:
    """Names and times; the credentials stay here."""
    identity = caller(request)
    records = await context(request).store.read(
        lambda conn: user_records.list_records(conn, KIND, identity.username)
    )
    namespace = namespace_of(identity.username)
    items = [
        PaddleSecret(SecretMetadata(record.name, namespace, timestamp(record.created_ms)))
        for record in records
    ]
    return PaddleRegistries(200, Secrets(items))


@route(
    "POST /api/v1/registry",
    authority=CLUSTER,
    summary="Store the credentials of an image registry",
    body=_BODY,
)
async def put_registry(request: Request, body: PaddleRegistryBody) -> PaddleReply:
    """Store the credentials of a registry; those of the same name are replaced."""
    ctx = context(request)
    name, owner = _full_name(body.name), caller(request).username
    credentials = msgspec.json.encode(RegistryCredentials(body.username, body.password, body.server))
    record = UserRecord(
        KIND, name, owner, int(time.time() * 1000), ctx.identity.sealer.seal(credentials, _scope(owner))
    )

    def put(conn: Connection) -> None:
        is_new = user_records.find_record(conn, KIND, name, owner) is None
        if is_new and user_records.count_records(conn, KIND, owner) >= MAX_REGISTRIES:
            raise InvalidParameters(f"You have {MAX_REGISTRIES} registries, which is the limit.")
        user_records.put_record(conn, record)

    await ctx.store.write(put)
    return SUCCESS


@route(
    "DELETE /api/v1/registry",
    authority=CLUSTER,
    summary="Delete the credentials of an image registry",
    body=_BODY,
)
async def delete_registry(request: Request, body: PaddleRegistryName) -> PaddleReply:
    name, owner = _full_name(body.name), caller(request).username
    deleted = await context(request).store.write(
        lambda conn: user_records.delete_record(conn, KIND, owner, name)
    )
    if not deleted:
        raise _unknown(name)
    return SUCCESS


async def credentials_of(ctx: Context, username: str, name: str) -> RegistryCredentials | None:
    """Credentials that a job names, with or without the prefix; None if it names none."""
    if not name:
        return None
    full = _full_name(name)
    record = await ctx.store.read(lambda conn: user_records.find_record(conn, KIND, full, username))
    if record is None:
        raise _unknown(full)
    return msgspec.json.decode(
        ctx.identity.sealer.unseal(record.sealed, _scope(username)), type=RegistryCredentials
    )


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no registry {name.removeprefix(PREFIX)[:200]}.")


def _full_name(name: str) -> str:
    return name if name.startswith(PREFIX) else PREFIX + name


def _scope(username: str) -> str:
    return f"{KIND}:{username}"
