"""Routes of users: list, create, change, delete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden, InvalidParameters, NotFound, PaiError
from paicluster.api.context import Context, authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.permissions import NOT_SELF, authenticate_self_or_admin
from paicluster.api.request_fields import GROUPNAME, USERNAME, fields_of
from paicluster.api.responses import encode, json_response, page_params
from paicluster.api.v2 import legacy_storage_configs
from paicluster.auth import public_keys, user_extensions
from paicluster.auth import users as accounts
from paicluster.auth.passwords import hash_password
from paicluster.auth.public_keys import PublicKey
from paicluster.auth.ssh_keys import generate_key_pair
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.auth.users import MIN_PASSWORD_LENGTH, user_not_found
from paicluster.services.storages import usable
from paicluster.store import groups, storage_records, users
from paicluster.store.rows import UserGrants, UserRow


async def list_users(request: Request) -> Response:
    """All users, by name. ``offset`` and ``limit`` are our addition: OpenPAI always returns all."""
    identity = await authenticate(request)
    ctx = context(request)
    offset, limit = page_params(request)

    def read(conn: Connection) -> bytes:
        rows = users.list_users(conn, offset=offset, limit=limit)
        known = {row.groupname: row for row in groups.list_groups(conn)}
        legacy_configs = storage_records.names_and_groups(conn, legacy_storage_configs.CONFIG)
        in_groups = groups.groups_by_user(conn, rows[0].username, rows[-1].username) if rows else {}
        grants = (groups.combine([known[g] for g in in_groups.get(row.username, ())]) for row in rows)
        return encode(
            [
                _info(ctx, identity, row, access, legacy_configs)
                for row, access in zip(rows, grants, strict=True)
            ]
        )

    return Response(await ctx.store.read(read), media_type="application/json")


async def one_user(request: Request) -> Response:
    identity = await authenticate(request)
    ctx = context(request)
    username = request.path_params["user"]

    def read(conn: Connection) -> bytes | None:
        row = users.get_user(conn, username)
        if row is None and username == "me":
            row = users.get_user(conn, identity.username)
        if row is None:
            return None
        legacy_configs = storage_records.names_and_groups(conn, legacy_storage_configs.CONFIG)
        return encode(_info(ctx, identity, row, groups.access_of(conn, row.username), legacy_configs))

    body = await ctx.store.read(read)
    if body is None:
        # 400 and not 404, as in OpenPAI.
        raise InvalidParameters(f"User {username} is not found.", code="NoUserError")
    return Response(body, media_type="application/json")


def _info(
    ctx: Context,
    identity: Identity,
    row: UserRow,
    access: UserGrants,
    legacy_configs: Sequence[tuple[str, tuple[str, ...]]],
) -> dict[str, Any]:
    clusters = [name for name in ctx.quotas if access.may_use(name)]
    storage_names = [storage.name for storage in usable(ctx.storages(), access)]
    storage_names += [name for name, owners in legacy_configs if access.may_use_storage(name, owners)]
    return {
        "username": row.username,
        "grouplist": list(access.groups),
        "email": row.email,
        "extension": _extension(ctx, identity, row),
        "admin": access.admin,
        # Our addition.
        "disabled": row.disabled_ms is not None,
        "virtualCluster": clusters,
        "storageConfig": storage_names,
    }


def _extension(ctx: Context, identity: Identity, row: UserRow) -> dict[str, Any]:
    """Extension of a user, which has secrets: whole for the user, without secrets for administrators."""
    stored = json.loads(row.extension)
    if identity.username == row.username and identity.kind is TokenKind.SESSION:
        return user_extensions.unseal(stored, ctx.sealer, row.username)
    if identity.username == row.username or identity.admin:
        return user_extensions.without_secrets(stored)
    return {}


async def create_user(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    username = fields.text("username", pattern=USERNAME)
    password = fields.text("password", min_length=MIN_PASSWORD_LENGTH)
    email = fields.email("email", "")
    admin = fields.flag("admin", False)
    clusters = fields.names("virtualCluster", [], pattern=GROUPNAME)
    extension = fields.mapping("extension", {})
    fields.end()
    set_subject(request, username)
    await make_user(context(request), username, password, email, admin, clusters, extension)
    return json_response({"message": "User is created successfully"}, 201)


async def make_user(
    ctx: Context,
    username: str,
    password: str,
    email: str = "",
    admin: bool = False,
    clusters: list[str] | None = None,
    extension: Mapping[str, Any] | None = None,
) -> None:
    keys = await asyncio.to_thread(generate_key_pair)
    sealed = user_extensions.seal({"jobSSH": keys, **(extension or {})}, ctx.sealer, username)
    await accounts.create(
        ctx.store,
        username,
        password,
        email=email,
        admin=admin,
        virtual_clusters=[name for name in clusters or () if name != groups.DEFAULT],
        extension=sealed,
    )


async def update_user(request: Request) -> Response:
    """Change a user: with ``patch`` only the fields sent, else all are required."""
    await authenticate(request)
    fields = await fields_of(request)
    patch = fields.flag("patch", False)
    data = fields.inner("data")
    fields.end()
    username = data.text("username", pattern=USERNAME)
    set_subject(request, username)
    change = _UserChange()
    change.email = data.email("email") if not patch or "email" in data else None
    if not patch or "virtualCluster" in data:
        change.clusters = data.names("virtualCluster", pattern=GROUPNAME)
    change.admin = data.flag("admin") if not patch or "admin" in data else None
    if not patch or "password" in data:
        change.password = data.text("password", min_length=MIN_PASSWORD_LENGTH)
    change.extension = data.mapping("extension") if not patch or "extension" in data else None
    data.end()
    await change.apply(context(request), username)
    return json_response({"message": f"Update user {username} successfully"}, 201)


async def update_me(request: Request) -> Response:
    """Change the calling user. A new password needs the old one."""
    identity = await authenticate(request)
    fields = await fields_of(request)
    patch = fields.flag("patch", False)
    data = fields.inner("data")
    fields.end()
    if data.text("username", pattern=USERNAME) != identity.username:
        raise Forbidden(NOT_SELF)
    change = _UserChange()
    change.email = data.email("email") if not patch or "email" in data else None
    old = None
    if not patch or "newPassword" in data:
        change.password = data.text("newPassword", min_length=MIN_PASSWORD_LENGTH)
        old = data.text("oldPassword")
    else:
        data.text("oldPassword", "")
    # Optional also without `patch`: OpenPAI's JavaScript SDK does not send it.
    change.extension = data.mapping("extension") if "extension" in data else None
    data.end()
    ctx = context(request)
    if old is not None:
        await check_current_password(request, identity.username, old)
    if old == change.password:
        # Nothing changes: it would only end the user's sessions.
        change.password = None
    await change.apply(ctx, identity.username)
    return json_response({"message": f"Update user {identity.username} successfully"}, 201)


@dataclass
class _UserChange:
    """Changes to a user; None leaves a property unchanged."""

    email: str | None = None
    clusters: list[str] | None = None
    admin: bool | None = None
    password: str | None = None
    extension: dict[str, Any] | None = None

    async def apply(self, ctx: Context, username: str) -> None:
        sealed = (
            None if self.extension is None else user_extensions.seal(self.extension, ctx.sealer, username)
        )

        password_hash = None
        if self.password is not None:
            password_hash = await asyncio.to_thread(hash_password, self.password)

        def write(conn: Connection) -> None:
            user = users.get_user(conn, username)
            if user is None:
                raise user_not_found(username)
            if self.email is not None:
                users.update_user(conn, username, email=self.email)
            if self.clusters is not None:
                accounts.set_virtual_clusters(conn, username, self.clusters)
            if self.admin is not None:
                groups.set_admin(conn, username, self.admin)
            if sealed is not None:
                accounts.merge_extension(conn, user, sealed)
            if password_hash is not None:
                accounts.put_password(conn, username, password_hash)

        await ctx.store.write(write)


async def delete_user(request: Request) -> Response:
    await authenticate(request)
    username = request.path_params["user"]
    await context(request).store.write(lambda conn: accounts.remove(conn, username))
    await context(request).user_quotas.reload()
    return json_response({"message": "user is removed successfully"})


# -- single properties ----------------------------------------------------------------------------


async def update_extension(request: Request) -> Response:
    username = request.path_params["user"]
    await authenticate_self_or_admin(request, username)
    fields = await fields_of(request)
    change = _UserChange()
    change.extension = fields.mapping("extension")
    fields.end()
    await change.apply(context(request), username)
    return json_response({"message": "Update user extension data successfully."}, 201)


async def update_virtual_clusters(request: Request) -> Response:
    await authenticate(request)
    username = request.path_params["user"]
    fields = await fields_of(request)
    names = fields.names("virtualCluster", pattern=GROUPNAME)
    fields.end()
    await set_virtual_clusters(context(request), username, names)
    return json_response({"message": "Update user virtualCluster data successfully."}, 201)


async def set_virtual_clusters(ctx: Context, username: str, names: list[str]) -> None:
    def write(conn: Connection) -> None:
        user = users.get_user(conn, username)
        if user is None:
            raise user_not_found(username)
        if user.admin:
            raise Forbidden("Admin's virtual clusters cannot be updated.")
        accounts.set_virtual_clusters(conn, username, [name for name in names if name != groups.DEFAULT])

    await ctx.store.write(write)


async def update_password(request: Request) -> Response:
    """By the user with the old password, or by an administrator."""
    username = request.path_params["user"]
    identity = await authenticate_self_or_admin(request, username)
    fields = await fields_of(request)
    old = fields.text("oldPassword", "defaultpai")
    new = fields.text("newPassword", min_length=MIN_PASSWORD_LENGTH)
    fields.end()
    ctx = context(request)
    if not identity.admin:
        await check_current_password(request, username, old)
    if not await accounts.set_password(ctx.store, username, new):
        raise user_not_found(username)
    return json_response({"message": "update user password successfully."}, 201)


async def update_email(request: Request) -> Response:
    username = request.path_params["user"]
    await authenticate_self_or_admin(request, username)
    fields = await fields_of(request)
    change = _UserChange()
    change.email = fields.email("email")
    fields.end()
    await change.apply(context(request), username)
    return json_response({"message": "Update user email data successfully."}, 201)


async def update_admin(request: Request) -> Response:
    await authenticate(request)
    username = request.path_params["user"]
    fields = await fields_of(request)
    change = _UserChange()
    change.admin = fields.flag("admin")
    fields.end()
    await change.apply(context(request), username)
    return json_response({"message": "Update user admin permission successfully."}, 201)


async def update_disabled(request: Request) -> Response:
    """Disable or enable a user; ``unfinishedJobs`` is the number of jobs that go on. Our addition."""
    await authenticate(request)
    username = request.path_params["user"]
    fields = await fields_of(request)
    is_disabled = fields.flag("disabled")
    fields.end()
    ctx = context(request)
    count = await ctx.store.write(lambda conn: accounts.set_disabled(conn, username, is_disabled))
    state = "disabled" if is_disabled else "enabled"
    return json_response({"message": f"User {username} is {state}.", "unfinishedJobs": count}, 201)


# -- public keys of a user -------------------------------------------------------------------------


async def add_ssh_key(request: Request) -> Response:
    """Add a public key to a user's profile. Our addition, as its removal."""
    username = request.path_params["user"]
    await authenticate_self_or_admin(request, username)
    fields = await fields_of(request)
    key = PublicKey.parse(fields.text("value"), fields.text("title", ""))
    fields.end()
    await context(request).store.write(lambda conn: public_keys.add_key(conn, username, key))
    return json_response({"message": f"The key {key.title} is added."}, 201)


async def remove_ssh_key(request: Request) -> Response:
    username = request.path_params["user"]
    await authenticate_self_or_admin(request, username)
    fields = await fields_of(request)
    line = fields.text("value")
    fields.end()
    await context(request).store.write(lambda conn: public_keys.remove_key(conn, username, line))
    return json_response({"message": "The key is removed."}, 201)


# -- the groups of a user --------------------------------------------------------------------------


async def add_group(request: Request) -> Response:
    await authenticate(request)
    username, groupname = request.path_params["user"], await _groupname(request)

    def write(conn: Connection) -> None:
        if groups.get_group(conn, groupname) is None:
            raise _no_group(f"Updated nonexistent group: {groupname}")
        _require_user(conn, username)
        groups.add_member(conn, username, groupname)

    await context(request).store.write(write)
    return json_response({"message": f"User {username} is added into group {groupname}"}, 201)


async def remove_group(request: Request) -> Response:
    await authenticate(request)
    username, groupname = request.path_params["user"], await _groupname(request)

    def write(conn: Connection) -> None:
        _require_user(conn, username)
        groups.remove_member(conn, username, groupname)

    await context(request).store.write(write)
    return json_response({"message": f"User {username} is removed from group {groupname}"}, 201)


async def set_groups(request: Request) -> Response:
    await authenticate(request)
    username = request.path_params["user"]
    fields = await fields_of(request)
    names = fields.names("grouplist", pattern=GROUPNAME)
    fields.end()

    def write(conn: Connection) -> None:
        _require_user(conn, username)
        unknown = [name for name in names if name not in groups.existing(conn, names)]
        if unknown:
            raise _no_group(f"Updated nonexistent grouplist: {','.join(unknown)}")
        groups.set_groups(conn, username, names)

    await context(request).store.write(write)
    return json_response({"message": "update user grouplist successfully."}, 201)


async def _groupname(request: Request) -> str:
    fields = await fields_of(request)
    groupname = fields.text("groupname", pattern=GROUPNAME)
    fields.end()
    set_subject(request, groupname)
    return groupname


async def check_current_password(request: Request, username: str, password: str) -> None:
    """Check a password; throttled as a login, so that a stolen token cannot be used to guess the password."""
    ctx = context(request)
    user = await ctx.store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise user_not_found(username)
    async with ctx.policies.login_throttle.attempt(request, username):
        await accounts.check_password(user, password)


def _require_user(conn: Connection, username: str) -> None:
    if users.get_user(conn, username) is None:
        raise user_not_found(username)


def _no_group(message: str) -> PaiError:
    return NotFound(message, code="NoGroupError")
