"""Routes of version 1 users: create, change, delete."""

from __future__ import annotations

from msgspec import UNSET
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import caller
from paicluster.api.routing.authority import ACCOUNT, ADMINISTRATION, NOT_ADMIN
from paicluster.api.routing.route import Routes
from paicluster.api.v2.users import check_current_password, make_user, set_virtual_clusters
from paicluster.api.wire.base import Message
from paicluster.api.wire.body_decoder import decode
from paicluster.api.wire.v1 import UserBodyV1, UserNameBodyV1, VirtualClusterNamesV1, VirtualClustersBodyV1
from paicluster.auth import users
from paicluster.auth.users import user_not_found
from paicluster.store import groups
from paiprotocol.errors import Forbidden

route = Routes("version 1")


@route(
    "PUT /api/v1/user",
    authority=ACCOUNT,
    summary="Create or change a user",
    status=201,
    errors=(404, 409),
)
async def put_user(request: Request, body: UserBodyV1) -> Message:
    """Create a user; with ``modify`` change the password, or as administrator also the administrator role.

    Our addition: ``oldPassword``, without which only administrators change a password.
    """
    identity, username, password = caller(request), body.username, body.password
    set_subject(request, username)
    if not identity.admin and (not body.modify or identity.username != username or body.admin):
        raise Forbidden(NOT_ADMIN)
    ctx = context(request)
    if not body.modify and password is not UNSET:
        await make_user(ctx, username, password, admin=body.admin or False)
        return Message("update successfully")
    if password is not UNSET and not identity.admin:
        if not body.old_password:
            raise users.WrongPassword(hint='Send the current password as "oldPassword".')
        await check_current_password(request, username, body.old_password)
    if password is not UNSET and not await users.set_password(ctx.store, username, password):
        raise user_not_found(username)
    if (admin := body.admin) is not UNSET and identity.admin:
        await ctx.store.write(lambda conn: groups.set_admin(conn, username, admin))
    return Message("update successfully")


@route(
    "DELETE /api/v1/user",
    authority=ADMINISTRATION,
    summary="Delete a user",
    errors=(404,),
)
async def delete_user(request: Request, body: UserNameBodyV1) -> Message:
    set_subject(request, body.username)
    await context(request).store.write(lambda conn: users.remove(conn, body.username))
    await context(request).capacity.user_quotas.reload()
    return Message("remove successfully")


@route(
    "PUT /api/v1/user/{user}/virtualClusters",
    authority=ADMINISTRATION,
    summary="Change a user's virtual clusters",
    status=201,
)
async def put_virtual_clusters(request: Request, body: VirtualClustersBodyV1) -> Message:
    """Set the virtual clusters a user may use; names separated by commas."""
    names = [name.strip() for name in body.virtual_clusters.split(",") if name.strip()]
    checked = decode(VirtualClusterNamesV1, {"virtualClusters": names})
    await set_virtual_clusters(context(request), request.path_params["user"], checked.virtual_clusters)
    return Message("update user virtual clusters successfully")
