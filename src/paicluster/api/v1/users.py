"""Users as version 1 changes them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Forbidden
from paicluster.api.context import authenticate_user, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.permissions import NOT_ADMIN, authenticate_admin
from paicluster.api.request_fields import GROUPNAME, USERNAME, Fields, fields_of
from paicluster.api.responses import json_response
from paicluster.api.v2.users import make_user, set_virtual_clusters
from paicluster.auth import users
from paicluster.auth.users import MIN_PASSWORD_LENGTH, user_not_found
from paicluster.store import groups


async def put_user(request: Request) -> Response:
    """Make a user; with ``modify`` change one: his password, and by an administrator whether he is one."""
    identity = await authenticate_user(request)
    given = await fields_of(request)
    username = given.text("username", pattern=USERNAME)
    modify = given.flag("modify", False)
    admin = given.flag("admin") if "admin" in given else None
    needed = not modify or "password" in given
    password = given.text("password", min_length=MIN_PASSWORD_LENGTH) if needed else None
    given.end()
    set_subject(request, username)
    if not identity.admin and (not modify or identity.username != username or admin):
        raise Forbidden(NOT_ADMIN)
    ctx = context(request)
    if not modify and password is not None:
        await make_user(ctx, username, password, admin=bool(admin))
        return json_response({"message": "update successfully"}, 201)
    if password is not None and not await users.set_password(ctx.store, username, password):
        raise user_not_found(username)
    if admin is not None and identity.admin:
        await ctx.store.write(lambda conn: groups.set_admin(conn, username, admin))
    return json_response({"message": "update successfully"}, 201)


async def delete_user(request: Request) -> Response:
    await authenticate_admin(request)
    given = await fields_of(request)
    username = given.text("username", pattern=USERNAME)
    given.end()
    set_subject(request, username)
    await context(request).store.write(lambda conn: users.remove(conn, username))
    return json_response({"message": "remove successfully"})


async def put_virtual_clusters(request: Request) -> Response:
    """The virtual clusters a user may use, in one text with commas."""
    await authenticate_admin(request)
    username = request.path_params["user"]
    given = await fields_of(request)
    wanted = [name.strip() for name in given.text("virtualClusters").split(",") if name.strip()]
    given.end()
    Fields({"virtualClusters": wanted}).names("virtualClusters", pattern=GROUPNAME)
    await set_virtual_clusters(context(request), username, wanted)
    return json_response({"message": "update user virtual clusters successfully"}, 201)
