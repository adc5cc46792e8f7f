"""Authentication of requests: by token, by a browser's login, or by a client certificate."""

from __future__ import annotations

import base64
import binascii

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.identity import browser_login
from paicluster.api.middleware.policies import BoundRoute
from paicluster.api.requests.own_url import own_url
from paicluster.api.routing.dialect import CERTIFICATE_EXTENSION
from paicluster.api.routing.scope import IDENTITY_KEY, ROUTE_KEY
from paicluster.auth.tokens import GUEST, INVALID, Identity, TokenKind
from paicluster.auth.user_certificates import PresentedCertificate
from paiprotocol.errors import Unauthorized


def token_of(request: Request) -> tuple[str, str | None]:
    """Token of a request, and the user name when the token came as the password of Basic authentication."""
    header = request.headers.get("authorization")
    if not header:
        if (proof := request.headers.get(browser_login.PROOF_HEADER)) is not None:
            token = browser_login.token_of_browser(request.cookies, proof, own_url(request))
            if token is not None:
                return token, None
        raise Unauthorized(GUEST, hint="Send the header 'Authorization: Bearer <token>'.")
    scheme, _, credentials = header.partition(" ")
    credentials = credentials.strip()
    # "Token" is how PaddleCloud's clients send theirs.
    if scheme.lower() in ("bearer", "token"):
        return credentials, None
    if scheme.lower() == "basic":
        try:
            username, _, token = base64.b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthorized(INVALID) from None
        return token, username
    raise Unauthorized(INVALID)


async def identify(request: Request) -> Identity:
    """Identity of the caller, not counted by a rate limit; raises Unauthorized with OpenPAI's message."""
    presented = request.scope.get("extensions", {}).get(CERTIFICATE_EXTENSION)
    if presented is not None:
        return await _identify_by_certificate(request, presented)
    return await _identify_by_token(request)


async def _identify_by_certificate(request: Request, presented: PresentedCertificate) -> Identity:
    """The user of the client's certificate. A token or a browser's login must be of the same user.

    A browser sends the certificate with the requests of every page, so those of other sites are refused.
    """
    identity = await context(request).identity.certificates.verify(presented)
    if "authorization" in request.headers or browser_login.PROOF_HEADER in request.headers:
        by_token = await _identify_by_token(request)
        if by_token.username != identity.username:
            raise Unauthorized(
                f"The certificate is that of user {identity.username}, the token that of "
                f"{by_token.username}.",
                hint="Send only one of them.",
            )
        return by_token
    asked = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
    if request.headers.get("origin", asked) not in (asked, own_url(request)):
        raise Unauthorized(
            "A page of another site cannot use your certificate.", hint="Send a token with the request."
        )
    request.scope[IDENTITY_KEY] = identity
    return identity


async def _identify_by_token(request: Request) -> Identity:
    token, username = token_of(request)
    identity = await context(request).identity.tokens.verify(token)
    # Only application tokens are accepted as the password of Basic authentication.
    if username is not None and not (
        identity.kind is TokenKind.APPLICATION and identity.username == username
    ):
        raise Unauthorized(INVALID)
    request.scope[IDENTITY_KEY] = identity
    return identity


async def authenticate(request: Request) -> Identity:
    """Identity of the caller, whose request is counted; raises Unauthorized and Forbidden with OpenPAI's
    messages.

    Forbidden where the route does not accept this kind of token, or accepts it from administrators only.
    """
    identity = await identify(request)
    accept(request, identity)
    return identity


def caller(request: Request) -> Identity:
    """Identity of the caller, who was authenticated before the body of the request was read."""
    identity: Identity = request.scope[IDENTITY_KEY]
    return identity


def accept(request: Request, identity: Identity) -> None:
    """Accept a verified identity as the caller, or raise Forbidden; counts the request for its user."""
    scope = request.scope
    scope[IDENTITY_KEY] = identity
    route: BoundRoute = scope[ROUTE_KEY]
    if route.rate is not None:
        route.rate.take(identity.username)
    route.authority.check(identity)
