"""Who asks the storage for something: a token, a ticket, or, where the administrator says so, a name."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection
from starlette.requests import Request

from openpaisdk.errors import PaiError, Unauthorized
from paicluster.api.context import Context
from paicluster.api.context import authenticate as authenticate_token
from paicluster.api.middleware.audit import WHO
from paicluster.api.webhdfs import tickets, token_codec
from paicluster.api.webhdfs.exceptions import Refused
from paicluster.api.webhdfs.parameters import Parameters
from paicluster.auth.tokens import Identity
from paicluster.files import StorageUser
from paicluster.files.errors import not_allowed
from paicluster.services.file_service import storage_user
from paicluster.store import groups, users
from paicluster.store.rows import UserGrants

# Hadoop's clients take the class in the middle to be what is wrong.
_BAD_TOKEN = (
    "Failed to obtain user group information: org.apache.hadoop.security.token.SecretManager$InvalidToken: "
)
_NOBODY = (
    "Authentication required: send a token, as the header 'Authorization: Bearer <token>' "
    "or as the parameter 'delegation'."
)


@dataclass(frozen=True, slots=True)
class Caller:
    person: StorageUser
    # The token that was shown; empty for those who came with a ticket or a name.
    token: str = ""
    identity: Identity | None = None


async def authenticate(
    request: Request, ctx: Context, parameters: Parameters, operation: str, path: str
) -> Caller:
    asking = await _asking(request, ctx, parameters, operation, path)
    doas = parameters.text("doas")
    if not doas or doas == asking.person.name:
        return asking
    if not asking.person.admin:
        raise not_allowed(f"User: {asking.person.name} is not allowed to impersonate {doas}")
    return Caller((await _known(ctx, doas, admin=True))[0])


async def _asking(
    request: Request, ctx: Context, parameters: Parameters, operation: str, path: str
) -> Caller:
    delegation = parameters.text("delegation")
    if delegation:
        return await _by_token(request, ctx, token_codec.decode(delegation))
    if "authorization" in request.headers:
        identity = await authenticate_token(request)
        token = request.headers["authorization"].partition(" ")[2].strip()
        return Caller(storage_user(identity), token, identity)
    name, ticket = parameters.text("user.name"), parameters.text("ticket")
    if ticket:
        admin = tickets.check(ctx.tickets, ticket, operation, path, name)
        return await _by_name(request, ctx, name, admin=admin)
    if name and ctx.files.trust_user_name:
        # A name that anybody can write makes nobody an administrator.
        return await _by_name(request, ctx, name, admin=False)
    raise Unauthorized(_NOBODY)


async def _by_token(request: Request, ctx: Context, token: str) -> Caller:
    try:
        identity = await ctx.tokens.verify(token)
    except PaiError as error:
        raise Refused("java.lang.SecurityException", 401, _BAD_TOKEN + error.message) from None
    request.scope[WHO] = identity
    return Caller(storage_user(identity), token, identity)


async def _by_name(request: Request, ctx: Context, name: str, *, admin: bool) -> Caller:
    person, access = await _known(ctx, name, admin=admin)
    # So that the audit log knows him too. This is no token: there is nothing to be shown or passed on.
    request.scope[WHO] = Identity(name, person.admin, False, None, "", access)
    return Caller(person)


async def _known(ctx: Context, name: str, *, admin: bool) -> tuple[StorageUser, UserGrants]:
    """Somebody by his name, with his groups; administrators only where ``admin`` permits it."""

    def look(conn: Connection) -> UserGrants | None:
        return None if users.get_user(conn, name) is None else groups.access_of(conn, name)

    access = await ctx.store.read(look)
    if access is None:
        raise Unauthorized(f"There is no user {name!r} on this cluster.")
    return StorageUser(name, frozenset(access.groups), admin and access.admin), access
