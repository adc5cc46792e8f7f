"""Checks before routing: rate limit of a token or an address, connections of a token, CORS, API dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paicluster.api.middleware.connection_limits import connection_of
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.routing.dialect import Dialect, dialect_of
from paicluster.api.routing.route import Responder
from paicluster.api.wire.responses import error_response
from paiprotocol.errors import PaiError

_VERSION_2 = "/api/v2"


class RequestFilter:
    """Applied to each request before its route is chosen.

    ``token_id`` gives the id of a request's token, None unless it is valid: these requests count for the
    token, all others for their address. Strangers can thus not use up what a user of their address needs.
    """

    def __init__(
        self,
        policies: HttpPolicies,
        paddlecloud: Responder,
        token_id: Callable[[Scope], Awaitable[str | None]],
    ):
        self._token_id = token_id
        self._rate = policies.rate_limits.requests
        self._connections = policies.token_connections
        self._headers = policies.headers
        self._paddlecloud = paddlecloud
        self._rejections = policies.metrics.series("ANY", "too many requests")
        self._counts = self._rate is not None or self._connections is not None
        self._applies_always = self._counts or self._headers.cors_enabled

    def applies_to(self, path: str) -> bool:
        """Whether the filter has anything to do; on the embedded cluster mostly not."""
        return self._applies_always or not path.startswith(_VERSION_2)

    async def apply(
        self, scope: Scope, receive: Receive, send: Send
    ) -> tuple[Receive, Send, Responder | None]:
        """Receive and send to use, and a handler when another one than the request's route must respond."""
        if self._counts and scope["client"] is not None:
            token_id = await self._token_id(scope)
            try:
                if self._rate is not None:
                    self._rate.take(scope["client"][0] if token_id is None else f"token {token_id}")
                self._count_connection(receive, token_id)
            except PaiError as error:
                self._rejections.count(429, 0.0)
                return receive, send, self._respond_with(error_response(error))
        if self._headers.cors_enabled and (origin := self._headers.allowed_origin(scope)) is not None:
            if scope["method"] == "OPTIONS":
                return receive, send, self._respond_with(self._headers.preflight(scope, origin))
            send = self._headers.with_cors(origin, send)
        path: str = scope["path"]
        if path.startswith(_VERSION_2):
            return receive, send, None
        is_paddlecloud = dialect_of(scope) is Dialect.PADDLECLOUD
        return receive, send, self._paddlecloud if is_paddlecloud else None

    def _count_connection(self, receive: Receive, token_id: str | None) -> None:
        if self._connections is None or token_id is None:
            return
        connection = connection_of(receive)
        if connection is not None:
            self._connections.count(connection, token_id)

    def _respond_with(self, response: Response) -> Responder:
        async def respond(request: Request) -> Response:
            return response

        self._headers.apply(response)
        return respond
