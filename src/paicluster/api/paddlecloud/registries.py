"""Routes of a user's image registries: their credentials, with which jobs pull images."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import InvalidParameters, NotFound
from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cluster_objects import timestamp
from paicluster.api.paddlecloud.job_translation import RegistryCredentials, namespace_of
from paicluster.api.paddlecloud.replies import paddle_route, success
from paicluster.api.responses import MAX_FIELDS_BYTES, form_or_json
from paicluster.auth.tokens import Identity
from paicluster.store import user_records
from paicluster.store.user_records import UserRecord

KIND = "registry"
PREFIX = "pcloud-registry-"
"""Clients put it before the names of registries, and show only names that have it."""
MAX_REGISTRIES = 100
"""Registries of a user."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}")
_MAX_LENGTH = 4096


@paddle_route
async def list_registries(request: Request, identity: Identity) -> Response:
    """Names and times; the credentials stay here."""
    records = await context(request).store.read(
        lambda conn: user_records.list_records(conn, KIND, identity.username)
    )
    namespace = namespace_of(identity.username)
    items = [
        {
            "metadata": {
                "name": record.name,
                "namespace": namespace,
                "creation_timestamp": timestamp(record.created_ms),
            }
        }
        for record in records
    ]
    return success(msg={"items": items})


@paddle_route
async def put_registry(request: Request, identity: Identity) -> Response:
    """Store the credentials of a registry; those of the same name are replaced."""
    ctx = context(request)
    fields = await form_or_json(request, MAX_FIELDS_BYTES)
    name = _name(fields)
    username, password, server = (_text(fields, key) for key in ("username", "password", "server"))
    credentials = msgspec.json.encode(RegistryCredentials(username, password, server))
    owner = identity.username
    record = UserRecord(
        KIND, name, owner, int(time.time() * 1000), ctx.sealer.seal(credentials, _scope(owner))
    )

    def put(conn: Connection) -> None:
        is_new = user_records.find_record(conn, KIND, name, owner) is None
        if is_new and user_records.count_records(conn, KIND, owner) >= MAX_REGISTRIES:
            raise InvalidParameters(f"You have {MAX_REGISTRIES} registries, which is the limit.")
        user_records.put_record(conn, record)

    await ctx.store.write(put)
    return success()


@paddle_route
async def delete_registry(request: Request, identity: Identity) -> Response:
    name = _name(await form_or_json(request, MAX_FIELDS_BYTES))
    deleted = await context(request).store.write(
        lambda conn: user_records.delete_record(conn, KIND, identity.username, name)
    )
    if not deleted:
        raise _unknown(name)
    return success()


async def credentials_of(ctx: Context, username: str, name: str) -> RegistryCredentials | None:
    """Credentials that a job names, with or without the prefix; None if it names none."""
    if not name:
        return None
    full = name if name.startswith(PREFIX) else PREFIX + name
    record = await ctx.store.read(lambda conn: user_records.find_record(conn, KIND, full, username))
    if record is None:
        raise _unknown(full)
    return msgspec.json.decode(ctx.sealer.unseal(record.sealed, _scope(username)), type=RegistryCredentials)


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no registry {name.removeprefix(PREFIX)[:200]}.")


def _name(fields: dict[str, Any]) -> str:
    name = _text(fields, "name")
    if not _NAME.fullmatch(name):
        raise InvalidParameters("name must be the name of a registry: letters, digits, '.' and '-'.")
    return name if name.startswith(PREFIX) else PREFIX + name


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value or len(value) > _MAX_LENGTH:
        raise InvalidParameters(f"{key} must be text of 1 to {_MAX_LENGTH} characters.")
    return value


def _scope(username: str) -> str:
    return f"{KIND}:{username}"
