"""Who is at the door: may he come in, from where does he come, whose language does he speak."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openpaisdk.errors import PaiError
from paicluster.api.dialect import Dialect, dialect, is_ambiguous
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.rate_limits import replayed
from paicluster.api.responses import error_response, read_body

Handler = Callable[[Request], Awaitable[Response]]

_VERSION_2 = "/api/v2"


class RequestFilter:
    """Looks at a request before its route is chosen."""

    def __init__(self, edge: HttpPolicies, paddlecloud: Handler):
        self._rate = edge.rates.requests
        self._headers = edge.headers
        self._paddlecloud = paddlecloud
        self._refused = edge.meters.series("ANY", "too many requests")
        self._always = self._rate is not None or self._headers.cors_enabled

    def applies_to(self, path: str) -> bool:
        """Whether there is anything to look at; on one's own machine mostly not."""
        return self._always or not path.startswith(_VERSION_2)

    async def apply(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send, Handler | None]:
        """How to go on; with a handler when the answer is not that of the request's own route."""
        if self._rate is not None and scope["client"] is not None:
            try:
                self._rate.take(scope["client"][0])
            except PaiError as error:
                self._refused.count(429, 0.0)
                return receive, send, self._answering(error_response(error))
        if self._headers.cors_enabled and (origin := self._headers.origin_of(scope)) is not None:
            if scope["method"] == "OPTIONS":
                return receive, send, self._answering(self._headers.preflight(scope, origin))
            send = self._headers.allowing(origin, send)
        path: str = scope["path"]
        if path.startswith(_VERSION_2):
            return receive, send, None
        body = None
        if is_ambiguous(scope["method"], path):
            try:
                body = await read_body(Request(scope, receive))
            except ClientDisconnect:
                return receive, send, self._answering(Response(status_code=499))
            except PaiError as error:
                return receive, send, self._answering(error_response(error))
            receive = replayed(receive, body)
        spoken = _dialect(scope, path, body)
        return receive, send, self._paddlecloud if spoken is Dialect.PADDLECLOUD else None

    def _answering(self, response: Response) -> Handler:
        async def answer(request: Request) -> Response:
            return response

        self._headers.apply(response)
        return answer


def _dialect(scope: Scope, path: str, body: bytes | None) -> Dialect:
    authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    tls = scope.get("extensions", {}).get("tls", {})
    return dialect(path, authorization, bool(tls.get("client_cert_chain")), body)
