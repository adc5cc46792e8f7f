"""Routes of users: list, create, change, delete."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import authenticate, caller
from paicluster.api.requests.permissions import NOT_SELF, self_or_admin
from paicluster.api.routing.authority import ACCOUNT, ADMINISTRATION, CLUSTER
from paicluster.api.routing.route import PAGE, Routes
from paicluster.api.v2 import legacy_storage_configs
from paicluster.api.wire.base import Message
from paicluster.api.wire.query_parameters import page_params
from paicluster.api.wire.responses import Encoded, encoded
from paicluster.api.wire.users import (
    AdminBody,
    DisabledBody,
    DisabledResult,
    EmailBody,
    ExtensionBody,
    GroupBody,
    GroupsBody,
    NewUser,
    OwnUserChange,
    PasswordBody,
    SshKeyBody,
    SshKeyRemoval,
    UserChange,
    UserInfo,
    VirtualClustersBody,
)
from paicluster.auth import public_keys, user_extensions
from paicluster.auth import users as accounts
from paicluster.auth.passwords import hash_password
from paicluster.auth.public_keys import PublicKey
from paicluster.auth.ssh_keys import generate_key_pair
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.auth.users import user_not_found
from paicluster.remote_storages.storages import usable
from paicluster.store import groups, storage_records, users
from paicluster.store.rows import UserGrants, UserRow
from paiprotocol.errors import Forbidden, InvalidParameters, NotFound, PaiError

route = Routes("user")

# As in OpenPAI.
_DEFAULT_PASSWORD = "defaultpai"


@route(
    "GET /api/v2/(users|user)",
    authority=CLUSTER,
    summary="List users",
    query=PAGE,
)
async def list_users(request: Request) -> Encoded[list[UserInfo]]:
    """All users, by name. ``offset`` and ``limit`` are our addition: OpenPAI always returns all."""
    identity = await authenticate(request)
    ctx = context(request)
    offset, limit = page_params(request)

    def read(conn: Connection) -> Encoded[list[UserInfo]]:
        rows = users.list_users(conn, offset=offset, limit=limit)
        known = {row.groupname: row for row in groups.list_groups(conn)}
        legacy_configs = storage_records.names_and_groups(conn, legacy_storage_configs.CONFIG)
        in_groups = groups.groups_by_user(conn, rows[0].username, rows[-1].username) if rows else {}
        grants = (groups.combine([known[g] for g in in_groups.get(row.username, ())]) for row in rows)
        return encoded(
            [
                _info(ctx, identity, row, access, legacy_configs)
                for row, access in zip(rows, grants, strict=True)
            ]
        )

    return await ctx.store.read(read)


@route(
    "GET /api/v2/(users|user)/{user}",
    "GET /api/v1/user/{user}",
    authority=CLUSTER,
    summary="Get a user",
    errors=(400,),
)
async def one_user(request: Request) -> UserInfo:
    identity = await authenticate(request)
    ctx = context(request)
    username = request.path_params["user"]

    def read(conn: Connection) -> UserInfo | None:
        row = users.get_user(conn, username)
        if row is None and username == "me":
            row = users.get_user(conn, identity.username)
        if row is None:
            return None
        legacy_configs = storage_records.names_and_groups(conn, legacy_storage_configs.CONFIG)
        return _info(ctx, identity, row, groups.access_of(conn, row.username), legacy_configs)

    user = await ctx.store.read(read)
    if user is None:
        # 400 and not 404, as in OpenPAI.
        raise InvalidParameters(f"User {username} is not found.", code="NoUserError")
    return user


def _info(
    ctx: Context,
    identity: Identity,
    row: UserRow,
    access: UserGrants,
    legacy_configs: Sequence[tuple[str, tuple[str, ...]]],
) -> UserInfo:
    clusters = [name for name in ctx.capacity.virtual_clusters.quotas if access.may_use(name)]
    storage_names = [storage.name for storage in usable(ctx.files.storages, access)]
    storage_names += [name for name, owners in legacy_configs if access.may_use_storage(name, owners)]
    return UserInfo(
        username=row.username,
        grouplist=list(access.groups),
        email=row.email,
        extension=_extension(ctx, identity, row),
        admin=access.admin,
        # Our addition.
        disabled=row.disabled_ms is not None,
        virtual_cluster=clusters,
        storage_config=storage_names,
    )


def _extension(ctx: Context, identity: Identity, row: UserRow) -> dict[str, Any]:
    """Extension of a user, which has secrets: whole for the user, without secrets for administrators."""
    stored = json.loads(row.extension)
    if identity.username == row.username and identity.kind is TokenKind.LOGIN:
        return user_extensions.unseal(stored, ctx.identity.sealer, row.username)
    if identity.username == row.username or identity.admin:
        return user_extensions.without_secrets(stored)
    return {}


@route(
    "POST /api/v2/(users|user)",
    authority=ADMINISTRATION,
    summary="Create a user",
    status=201,
    errors=(404, 409),
)
async def create_user(request: Request, user: NewUser) -> Message:
    set_subject(request, user.username)
    await make_user(
        context(request),
        user.username,
        user.password,
        user.email or "",
        user.admin or False,
        user.virtual_cluster or [],
        user.extension or {},
    )
    return Message("User is created successfully")


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
    sealed = user_extensions.seal({"jobSSH": keys, **(extension or {})}, ctx.identity.sealer, username)
    await accounts.create(
        ctx.store,
        username,
        password,
        email=email,
        admin=admin,
        virtual_clusters=[name for name in clusters or () if name != groups.DEFAULT],
        extension=sealed,
    )


@route(
    "PUT /api/v2/(users|user)",
    authority=ADMINISTRATION,
    summary="Change a user",
    status=201,
    errors=(404, 409),
)
async def update_user(request: Request, change: UserChange) -> Message:
    """Change a user: with ``patch`` only the fields sent, else all are required."""
    data = change.data
    set_subject(request, data.username)
    changes = _Changes(data.email, data.virtual_cluster, data.admin, data.password, data.extension)
    await changes.apply(context(request), data.username)
    return Message(f"Update user {data.username} successfully")


@route(
    "PUT /api/v2/(users|user)/me",
    authority=ACCOUNT,
    summary="Change the calling user",
    status=201,
    errors=(404,),
)
async def update_me(request: Request, change: OwnUserChange) -> Message:
    """Change the calling user. A new password needs the old one."""
    username, data = caller(request).username, change.data
    if data.username != username:
        raise Forbidden(NOT_SELF)
    changes = _Changes(email=data.email, extension=data.extension)
    if data.new_password is not UNSET:
        await check_current_password(request, username, data.old_password or "")
        # Else nothing changes: it would only end the user's logins.
        if data.new_password != data.old_password:
            changes.password = data.new_password
    await changes.apply(context(request), username)
    return Message(f"Update user {username} successfully")


@dataclass
class _Changes:
    """Changes to a user; a property that is not set stays."""

    email: str | UnsetType = UNSET
    clusters: list[str] | UnsetType = UNSET
    admin: bool | UnsetType = UNSET
    password: str | UnsetType = UNSET
    extension: dict[str, Any] | UnsetType = UNSET

    async def apply(self, ctx: Context, username: str) -> None:
        sealed = (
            None
            if self.extension is UNSET
            else user_extensions.seal(self.extension, ctx.identity.sealer, username)
        )

        password_hash = None
        if self.password is not UNSET:
            password_hash = await asyncio.to_thread(hash_password, self.password)

        def write(conn: Connection) -> None:
            user = users.get_user(conn, username)
            if user is None:
                raise user_not_found(username)
            if self.email is not UNSET:
                users.update_user(conn, username, email=self.email)
            if self.clusters is not UNSET:
                accounts.set_virtual_clusters(conn, username, self.clusters)
            if self.admin is not UNSET:
                groups.set_admin(conn, username, self.admin)
            if sealed is not None:
                accounts.merge_extension(conn, user, sealed)
            if password_hash is not None:
                accounts.put_password(conn, username, password_hash)

        await ctx.store.write(write)


@route(
    "DELETE /api/v2/(users|user)/{user}",
    authority=ADMINISTRATION,
    summary="Delete a user",
)
async def delete_user(request: Request) -> Message:
    await authenticate(request)
    username = request.path_params["user"]
    await context(request).store.write(lambda conn: accounts.remove(conn, username))
    await context(request).capacity.user_quotas.reload()
    return Message("user is removed successfully")


# -- single properties ----------------------------------------------------------------------------


@route(
    "PUT /api/v2/(users|user)/{user}/extension",
    authority=ACCOUNT,
    guard=self_or_admin,
    summary="Change a user's extension",
    status=201,
)
async def update_extension(request: Request, body: ExtensionBody) -> Message:
    await _Changes(extension=body.extension).apply(context(request), request.path_params["user"])
    return Message("Update user extension data successfully.")


@route(
    "PUT /api/v2/(users|user)/{user}/virtualcluster",
    authority=ADMINISTRATION,
    summary="Change a user's virtual clusters",
    status=201,
)
async def update_virtual_clusters(request: Request, body: VirtualClustersBody) -> Message:
    await set_virtual_clusters(context(request), request.path_params["user"], body.virtual_cluster)
    return Message("Update user virtualCluster data successfully.")


async def set_virtual_clusters(ctx: Context, username: str, names: list[str]) -> None:
    def write(conn: Connection) -> None:
        user = users.get_user(conn, username)
        if user is None:
            raise user_not_found(username)
        if user.admin:
            raise Forbidden("Admin's virtual clusters cannot be updated.")
        accounts.set_virtual_clusters(conn, username, [name for name in names if name != groups.DEFAULT])

    await ctx.store.write(write)


@route(
    "PUT /api/v2/(users|user)/{user}/password",
    authority=ACCOUNT,
    guard=self_or_admin,
    summary="Change a user's password",
    status=201,
)
async def update_password(request: Request, body: PasswordBody) -> Message:
    """By the user with the old password, or by an administrator."""
    username = request.path_params["user"]
    if not caller(request).admin:
        old = _DEFAULT_PASSWORD if body.old_password is UNSET else body.old_password
        await check_current_password(request, username, old)
    if not await accounts.set_password(context(request).store, username, body.new_password):
        raise user_not_found(username)
    return Message("update user password successfully.")


@route(
    "PUT /api/v2/(users|user)/{user}/email",
    authority=ACCOUNT,
    guard=self_or_admin,
    summary="Change a user's email address",
    status=201,
)
async def update_email(request: Request, body: EmailBody) -> Message:
    await _Changes(email=body.email).apply(context(request), request.path_params["user"])
    return Message("Update user email data successfully.")


@route(
    "PUT /api/v2/(users|user)/{user}/admin",
    authority=ADMINISTRATION,
    summary="Grant or revoke administrator rights",
    status=201,
)
async def update_admin(request: Request, body: AdminBody) -> Message:
    await _Changes(admin=body.admin).apply(context(request), request.path_params["user"])
    return Message("Update user admin permission successfully.")


@route(
    "PUT /api/v2/(users|user)/{user}/disabled",
    authority=ADMINISTRATION,
    summary="Disable or enable a user",
    status=201,
)
async def update_disabled(request: Request, body: DisabledBody) -> DisabledResult:
    """Disable or enable a user; ``unfinishedJobs`` is the number of jobs that go on. Our addition."""
    username = request.path_params["user"]
    count = await context(request).store.write(
        lambda conn: accounts.set_disabled(conn, username, body.disabled)
    )
    state = "disabled" if body.disabled else "enabled"
    return DisabledResult(f"User {username} is {state}.", count)


# -- public keys of a user -------------------------------------------------------------------------


@route(
    "POST /api/v2/(users|user)/{user}/ssh-keys",
    authority=ACCOUNT,
    guard=self_or_admin,
    summary="Add a public key to a user's profile",
    status=201,
    errors=(409,),
)
async def add_ssh_key(request: Request, body: SshKeyBody) -> Message:
    """Add a public key to a user's profile. Our addition, as its removal."""
    username = request.path_params["user"]
    key = PublicKey.parse(body.value, body.title or "")
    await context(request).store.write(lambda conn: public_keys.add_key(conn, username, key))
    return Message(f"The key {key.title} is added.")


@route(
    "DELETE /api/v2/(users|user)/{user}/ssh-keys",
    authority=ACCOUNT,
    guard=self_or_admin,
    summary="Remove a public key from a user's profile",
    status=201,
)
async def remove_ssh_key(request: Request, body: SshKeyRemoval) -> Message:
    username = request.path_params["user"]
    await context(request).store.write(lambda conn: public_keys.remove_key(conn, username, body.value))
    return Message("The key is removed.")


# -- the groups of a user --------------------------------------------------------------------------


@route(
    "PUT /api/v2/(users|user)/{user}/group",
    authority=ADMINISTRATION,
    summary="Add a user to a group",
    status=201,
)
async def add_group(request: Request, body: GroupBody) -> Message:
    username, groupname = request.path_params["user"], body.groupname
    set_subject(request, groupname)

    def write(conn: Connection) -> None:
        if groups.get_group(conn, groupname) is None:
            raise _no_group(f"Updated nonexistent group: {groupname}")
        _require_user(conn, username)
        groups.add_member(conn, username, groupname)

    await context(request).store.write(write)
    return Message(f"User {username} is added into group {groupname}")


@route(
    "DELETE /api/v2/(users|user)/{user}/group",
    authority=ADMINISTRATION,
    summary="Remove a user from a group",
    status=201,
)
async def remove_group(request: Request, body: GroupBody) -> Message:
    username, groupname = request.path_params["user"], body.groupname
    set_subject(request, groupname)

    def write(conn: Connection) -> None:
        _require_user(conn, username)
        groups.remove_member(conn, username, groupname)

    await context(request).store.write(write)
    return Message(f"User {username} is removed from group {groupname}")


@route(
    "PUT /api/v2/(users|user)/{user}/grouplist",
    authority=ADMINISTRATION,
    summary="Set a user's groups",
    status=201,
)
async def set_groups(request: Request, body: GroupsBody) -> Message:
    username, names = request.path_params["user"], body.grouplist

    def write(conn: Connection) -> None:
        _require_user(conn, username)
        unknown = [name for name in names if name not in groups.existing(conn, names)]
        if unknown:
            raise _no_group(f"Updated nonexistent grouplist: {','.join(unknown)}")
        groups.set_groups(conn, username, names)

    await context(request).store.write(write)
    return Message("update user grouplist successfully.")


async def check_current_password(request: Request, username: str, password: str) -> None:
    """Check a password; throttled as a login, so that a stolen token cannot be used to guess the password."""
    ctx = context(request)
    user = await ctx.store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise user_not_found(username)
    async with ctx.server.policies.login_throttle.attempt(request, username):
        await accounts.check_password(user, password)


def _require_user(conn: Connection, username: str) -> None:
    if users.get_user(conn, username) is None:
        raise user_not_found(username)


def _no_group(message: str) -> PaiError:
    return NotFound(message, code="NoGroupError")
