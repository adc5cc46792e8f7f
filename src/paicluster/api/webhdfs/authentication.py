"""Authentication of WebHDFS requests: by token, by ticket or, where the settings allow it, by name."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import Context
from paicluster.api.identity.browser_login import PROOF_HEADER
from paicluster.api.requests.authentication import accept, token_of
from paicluster.api.requests.authentication import authenticate as authenticate_token
from paicluster.api.routing.scope import IDENTITY_KEY
from paicluster.api.webhdfs import redirects, token_codec
from paicluster.api.webhdfs.exceptions import JavaException
from paicluster.api.webhdfs.parameters import Parameters
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.auth.users import DisabledUser
from paicluster.files import StorageUser
from paicluster.files.errors import not_allowed
from paicluster.services.file_service import storage_user
from paicluster.store import groups, users
from paicluster.store.rows import UserGrants
from paiprotocol.errors import PaiError, Unauthorized

# Hadoop's clients parse the exception class out of this message.
_BAD_TOKEN = (
    "Failed to obtain user group information: org.apache.hadoop.security.token.SecretManager$InvalidToken: "
)
_UNAUTHENTICATED = (
    "Authentication required: send a token, as the header 'Authorization: Bearer <token>' "
    "or as the parameter 'delegation'."
)


class Caller(msgspec.Struct, frozen=True):
    """Authenticated user of a request."""

    user: StorageUser
    # The token of the request; empty when authenticated by ticket or name.
    token: str = ""
    identity: Identity | None = None


async def authenticate(
    request: Request, ctx: Context, parameters: Parameters, operation: str, path: str
) -> Caller:
    caller = await _authenticate(request, ctx, parameters, operation, path)
    doas = parameters.text("doas")
    if not doas or doas == caller.user.name:
        return caller
    if not caller.user.admin:
        raise not_allowed(f"User: {caller.user.name} is not allowed to impersonate {doas}")
    return Caller((await _find_user(ctx, doas, admin=True))[0])


async def _authenticate(
    request: Request, ctx: Context, parameters: Parameters, operation: str, path: str
) -> Caller:
    delegation = parameters.text("delegation")
    if delegation:
        return await _by_token(request, ctx, token_codec.decode(delegation))
    if "authorization" in request.headers or PROOF_HEADER in request.headers:
        identity = await authenticate_token(request)
        return Caller(storage_user(identity), token_of(request)[0], identity)
    name, ticket = parameters.text("user.name"), parameters.text("ticket")
    if ticket:
        admin = redirects.check_ticket(ctx.identity.tickets, ticket, operation, path, name)
        return await _by_name(request, ctx, name, admin=admin)
    if name and ctx.files.own.trust_user_name:
        # Any client can send any name: it never grants administrator rights.
        return await _by_name(request, ctx, name, admin=False)
    raise Unauthorized(_UNAUTHENTICATED)


async def _by_token(request: Request, ctx: Context, token: str) -> Caller:
    try:
        identity = await ctx.identity.tokens.verify(token)
    except PaiError as error:
        raise JavaException("java.lang.SecurityException", 401, _BAD_TOKEN + error.message) from None
    accept(request, identity)
    return Caller(storage_user(identity), token, identity)


async def _by_name(request: Request, ctx: Context, name: str, *, admin: bool) -> Caller:
    user, grants = await _find_user(ctx, name, admin=admin)
    # For the audit log. There is no token that could be delegated.
    request.scope[IDENTITY_KEY] = Identity(name, user.admin, TokenKind.LOGIN, None, "", grants)
    return Caller(user)


async def _find_user(ctx: Context, name: str, *, admin: bool) -> tuple[StorageUser, UserGrants]:
    """User by name, with groups; an administrator only if ``admin`` is true."""

    def read(conn: Connection) -> UserGrants | None:
        user = users.get_user(conn, name)
        if user is not None and user.disabled_ms is not None:
            raise DisabledUser(name)
        return None if user is None else groups.access_of(conn, name)

    grants = await ctx.store.read(read)
    if grants is None:
        raise Unauthorized(f"There is no user {name!r} on this cluster.")
    return StorageUser(name, frozenset(grants.groups), admin and grants.admin), grants
