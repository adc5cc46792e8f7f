"""Routes of version 1 users: create, change, delete."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden
from paicluster.api.authority import NOT_ADMIN
from paicluster.api.context import authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.request_fields import GROUPNAME, USERNAME, Fields, fields_of
from paicluster.api.responses import json_response
from paicluster.api.v2.users import check_current_password, make_user, set_virtual_clusters
from paicluster.auth import users
from paicluster.auth.users import MIN_PASSWORD_LENGTH, user_not_found
from paicluster.store import groups


async def put_user(request: Request) -> Response:
    """Create a user; with ``modify`` change the password, or as administrator also the administrator role.

    Our addition: ``oldPassword``, without which only administrators change a password.
    """
    identity = await authenticate(request)
    fields = await fields_of(request)
    username = fields.text("username", pattern=USERNAME)
    modify = fields.flag("modify", False)
    admin = fields.flag("admin") if "admin" in fields else None
    has_password = not modify or "password" in fields
    password = fields.text("password", min_length=MIN_PASSWORD_LENGTH) if has_password else None
    old_password = fields.text("oldPassword", "")
    fields.end()
    set_subject(request, username)
    if not identity.admin and (not modify or identity.username != username or admin):
        raise Forbidden(NOT_ADMIN)
    ctx = context(request)
    if not modify and password is not None:
        await make_user(ctx, username, password, admin=bool(admin))
        return json_response({"message": "update successfully"}, 201)
    if password is not None and not identity.admin:
        if not old_password:
            raise users.WrongPassword(hint='Send the current password as "oldPassword".')
        await check_current_password(request, username, old_password)
    if password is not None and not await users.set_password(ctx.store, username, password):
        raise user_not_found(username)
    if admin is not None and identity.admin:
        await ctx.store.write(lambda conn: groups.set_admin(conn, username, admin))
    return json_response({"message": "update successfully"}, 201)


async def delete_user(request: Request) -> Response:
    await authenticate(request)
    fields = await fields_of(request)
    username = fields.text("username", pattern=USERNAME)
    fields.end()
    set_subject(request, username)
    await context(request).store.write(lambda conn: users.remove(conn, username))
    await context(request).user_quotas.reload()
    return json_response({"message": "remove successfully"})


async def put_virtual_clusters(request: Request) -> Response:
    """Set the virtual clusters a user may use; names separated by commas."""
    await authenticate(request)
    username = request.path_params["user"]
    fields = await fields_of(request)
    names = [name.strip() for name in fields.text("virtualClusters").split(",") if name.strip()]
    fields.end()
    Fields({"virtualClusters": names}).names("virtualClusters", pattern=GROUPNAME)
    await set_virtual_clusters(context(request), username, names)
    return json_response({"message": "update user virtual clusters successfully"}, 201)
