"""Proxy in front of the web server of a task: admits its user, and passes HTTP and WebSockets on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import h11
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from paicluster.api.requests.web_socket_upgrade import Relay, detach_connection, origin_netloc
from paicluster.api.routing.scope import IDENTITY_KEY
from paicluster.api.v2.apps import OPEN_PATH
from paicluster.auth.tokens import Identity
from paicluster.web_apps.grants import AppGrants, cookie_name
from paicluster.web_apps.header_filter import request_headers, response_headers
from paicluster.web_apps.upstream import BadGateway, Upstream
from paiprotocol.errors import Forbidden, NotFound, PaiError

_CROSS_SITE = ("cross-site", "same-site")


class Proxy:
    """ASGI application of one app.

    ``connect`` opens a connection with the port of the task for a user, ``is_permitted`` tells whether that
    user is still signed in and may use the job.
    """

    def __init__(
        self,
        grants: AppGrants,
        task_port: int,
        connect: Callable[[Identity], Awaitable[socket.socket]],
        is_permitted: Callable[[Identity], Awaitable[bool]],
    ) -> None:
        self._grants = grants
        self._task_port = task_port
        self._connect = connect
        self._is_permitted = is_permitted
        # Requests and WebSockets.
        self.open_exchanges = 0
        self.last_used = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begin()
        try:
            await self._respond(scope, receive, send)
        finally:
            self._end()

    def _begin(self) -> None:
        self.open_exchanges += 1

    def _end(self) -> None:
        self.open_exchanges -= 1
        self.last_used = time.monotonic()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if scope["path"] == OPEN_PATH:
                await self._open(request)(scope, receive, send)
                return
            check_own_page(request)
            identity = self._grants.identity(request.cookies.get(cookie_name(_own_port(scope))))
            if not await self._is_permitted(identity):
                raise Forbidden("The session of this app has ended.", hint="Sign in to the portal again.")
            scope[IDENTITY_KEY] = identity
            upstream = await Upstream.connect(await self._connect(identity))
        except PaiError as error:
            await _page(error)(scope, receive, send)
            return
        exchange = _Exchange(upstream, request, send, self._task_port)
        client: asyncio.Transport | None = None
        try:
            client = await exchange.run()
        except PaiError as error:
            if not exchange.has_started:
                await _page(error)(scope, receive, send)
        finally:
            if client is None:
                upstream.close()
        if client is not None:
            self._join(client, upstream.transport)

    def _join(self, client: asyncio.Transport, task: asyncio.Transport) -> None:
        """Relay between both ends of a WebSocket until one of them is lost."""
        if client.is_closing() or task.is_closing():
            # Its loss was reported to the protocol it had, and no relay would hear of it.
            client.close()
            task.close()
            return
        self._begin()
        task.set_protocol(_CountedRelay(client, self._end))
        client.set_protocol(Relay(task))
        client.resume_reading()

    def _open(self, request: Request) -> Response:
        if request.method != "GET":
            raise NotFound("There is no such page.")
        value = self._grants.redeem(request.query_params.get("ticket", ""))
        to = request.query_params.get("to", "/")
        # A path of the app, never another host.
        safe = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
        response = RedirectResponse(safe, 303)
        response.headers["cache-control"] = "no-store"
        response.headers["referrer-policy"] = "no-referrer"
        # The port may have been that of another app, of whose pages nothing must be left.
        response.headers["clear-site-data"] = '"cache", "storage"'
        response.set_cookie(
            cookie_name(_own_port(request.scope)),
            value,
            path="/",
            secure=request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response


class _CountedRelay(Relay):
    """The task's end of a WebSocket."""

    def __init__(self, peer: asyncio.Transport, on_end: Callable[[], None]) -> None:
        super().__init__(peer)
        self._on_end = on_end

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_end()


def check_own_page(request: Request) -> None:
    """Raise Forbidden for requests of other pages than those of the app.

    For a browser all ports of a host are one site, so `SameSite` does not keep a page of another app away.
    """
    get = request.headers.get
    is_own = get("origin") is None or origin_netloc(request) == get("host", "")
    is_visit = (get("sec-fetch-mode"), get("sec-fetch-dest"), request.method) == (
        "navigate",
        "document",
        "GET",
    )
    if not is_own or (get("sec-fetch-site") in _CROSS_SITE and not is_visit):
        raise Forbidden("Only pages of this app may use it.")
    if get("service-worker") is not None:
        # It would outlive the app, and see the requests of the next one at this port.
        raise Forbidden("Apps of jobs have no service workers.")


class _Exchange:
    """One request and its response."""

    def __init__(self, upstream: Upstream, request: Request, send: Send, task_port: int) -> None:
        self._upstream = upstream
        self._request = request
        self._send = send
        self._task_port = task_port
        self._body_is_sent = asyncio.Event()
        self.has_started = False

    async def run(self) -> asyncio.Transport | None:
        """Pass the request on, and the response back; returns the browser's end of a WebSocket."""
        scope = self._request.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        is_upgrade = self._request.headers.get("upgrade", "").lower() == "websocket"
        received = scope["headers"]
        if not is_upgrade:
            received = [pair for pair in received if pair[0] != b"upgrade"]
        headers = request_headers(received, self._task_port, scope["scheme"])
        await self._upstream.send_head(scope["method"], target, headers)
        sender = asyncio.create_task(self._send_body())
        receiver = asyncio.create_task(self._receive_response())
        try:
            # The sender ends when the browser has gone.
            await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
            upgrade = receiver.result() if receiver.done() else sender.result()
        finally:
            for task in (sender, receiver):
                task.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)
        # Nothing is awaited from here until both ends have their relays: no byte and no loss is missed.
        return None if upgrade is None else self._upgrade(upgrade)

    async def _send_body(self) -> None:
        while True:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                return
            if self._body_is_sent.is_set():
                continue
            if body := message.get("body"):
                await self._upstream.send(h11.Data(data=body))
            if not message.get("more_body"):
                await self._upstream.send(h11.EndOfMessage())
                self._body_is_sent.set()

    async def _receive_response(self) -> h11.InformationalResponse | None:
        """Pass the response back; returns one that switches to a WebSocket."""
        while True:
            event = await self._upstream.receive()
            if isinstance(event, h11.InformationalResponse):
                return event
            if isinstance(event, h11.Response):
                self.has_started = True
                headers = response_headers(event.headers, self._task_port)
                await self._send(
                    {"type": "http.response.start", "status": event.status_code, "headers": headers}
                )
            elif isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            else:
                await self._send({"type": "http.response.body", "body": b""})
                return None

    def _upgrade(self, response: h11.InformationalResponse) -> asyncio.Transport:
        """Answer the browser: from here on the two connections are a WebSocket."""
        if self._request.headers.get("upgrade", "").lower() != "websocket":
            raise BadGateway("The program at this port of the task answered with another protocol.")
        client = detach_connection(self._request.receive)
        self.has_started = True
        head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        for name, value in response_headers(response.headers, self._task_port):
            head += name + b": " + value + b"\r\n"
        client.write(head + b"\r\n" + self._upstream.take_rest())
        return client


def _own_port(scope: Scope) -> int:
    return int(scope["server"][1])


def _page(error: PaiError) -> Response:
    text = "\n".join(part for part in (error.message, error.hint) if part)
    headers = {
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "cache-control": "no-store",
    }
    return PlainTextResponse(text + "\n", status_code=error.status, headers=headers)
