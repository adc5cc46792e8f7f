"""WebSocket upgrades: hands a client's connection to another process.

That process speaks WebSocket itself, so that neither its bytes nor its life depend on the server: without TLS
it gets the client's own socket and outlives a restart of the server. With TLS the server decrypts and copies.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import socket
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paicluster.api.identity.browser_login import PROOF_HEADER
from paicluster.api.middleware.connection_limits import leave_token
from paicluster.api.requests.own_url import own_url
from paicluster.api.routing.uvicorn_cycle import cycle_of, transport_of
from paicluster.api.wire.responses import error_response
from paiprotocol.errors import Forbidden, InvalidParameters, PaiError, Unavailable

# A browser can set no header but the protocols: it offers its token as one of them, and the portal, whose
# cookie has the other half, the proof of its login.
TOKEN_PREFIX = "bearer."
PROOF_PREFIX = "proof."

_VERSION = "13"
_KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# A client whose machine has vanished is noticed after a minute without traffic.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Channel(Protocol):
    """What takes a connection over."""

    async def start(self, connection: socket.socket) -> None:
        """Get ready to serve the connection, a duplicate of it. An error becomes the response."""

    async def proceed(self) -> None:
        """The response was sent: bytes may follow."""


class UpgradeResponse(Response):
    """The response that opens a WebSocket: 101, after which the connection belongs to a channel."""

    def __init__(self, channel: Channel, accept: str, protocol: str):
        super().__init__(status_code=101)
        self._channel = channel
        self._accept = accept
        self._protocol = protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            cycle, transport = _uvicorn_connection(receive)
            is_encrypted = transport.get_extra_info("sslcontext") is not None
            await self._open(transport, is_encrypted=is_encrypted)
        except PaiError as error:
            await error_response(error)(scope, receive, send)
            return
        # For uvicorn the response is complete, and the connection is closed.
        cycle.response_started = cycle.response_complete = True
        if not is_encrypted:
            transport.close()

    async def _open(self, transport: asyncio.Transport, *, is_encrypted: bool) -> None:
        transport.pause_reading()
        try:
            _keep_alive(transport)
            await (self._relay(transport) if is_encrypted else self._hand_over(transport))
        except BaseException as error:
            with contextlib.suppress(RuntimeError):  # it is closing
                transport.resume_reading()  # the client's next request
            if isinstance(error, OSError):
                reason = error.strerror or error
                raise Unavailable(f"The connection could not be handed over: {reason}.") from None
            raise

    def _head(self) -> bytes:
        return (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {self._accept}\r\nSec-WebSocket-Protocol: {self._protocol}\r\n\r\n"
        ).encode()

    async def _hand_over(self, transport: asyncio.Transport) -> None:
        """Give the client's own socket away."""
        fd = os.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=fd) as connection:
            await self._channel.start(connection)
            with contextlib.suppress(OSError):  # the client has gone: the channel notices it
                connection.send(self._head())
        await self._channel.proceed()

    async def _relay(self, transport: asyncio.Transport) -> None:
        """Copy between the encrypted connection and the channel."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._channel.start(theirs)
            to_client = Relay(transport)
            peer, _ = await asyncio.get_running_loop().create_connection(lambda: to_client, sock=ours)
        except BaseException:
            ours.close()
            raise
        _end_requests(transport)
        transport.set_protocol(Relay(peer))
        transport.write(self._head())
        transport.resume_reading()
        await self._channel.proceed()


class Relay(asyncio.Protocol):
    """Passes what one connection receives on to another one, not faster than that one takes it."""

    def __init__(self, peer: asyncio.Transport):
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def pause_writing(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closing
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._peer.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.close()


def _uvicorn_connection(receive: Receive) -> tuple[Any, asyncio.Transport]:
    """uvicorn's objects of a connection. Raises Unavailable if the client has gone."""
    transport = transport_of(receive)
    if transport is None or transport.get_extra_info("socket") is None:
        raise Unavailable("A WebSocket needs a running server.")
    if transport.is_closing():  # its socket may have no descriptor any more
        raise Unavailable("The client has closed the connection.")
    return cycle_of(receive), transport


def detach_connection(receive: Receive) -> asyncio.Transport:
    """The client's connection, which from now on belongs to the caller; for uvicorn the response is complete.

    The caller sets another protocol, and resumes reading. Raises Unavailable if the client has gone.
    """
    cycle, transport = _uvicorn_connection(receive)
    _keep_alive(transport)
    transport.pause_reading()
    _end_requests(transport)
    cycle.response_started = cycle.response_complete = True
    return transport


def _end_requests(transport: asyncio.Transport) -> None:
    """The connection has no more requests; what it is now has a limit of its own."""
    protocol: Any = transport.get_protocol()
    protocol.connections.discard(protocol)
    leave_token(protocol)


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def accept_upgrade(request: Request, protocol: str) -> str:
    """Value of Sec-WebSocket-Accept for a request to open a WebSocket with this protocol.

    Raises InvalidParameters for others.
    """
    get = request.headers.get
    if get("upgrade", "").lower() != "websocket":
        raise InvalidParameters(
            "This API is a WebSocket: send the headers of an upgrade.",
            status=426,
            code="UpgradeRequiredError",
        )
    if get("sec-websocket-version") != _VERSION:
        raise InvalidParameters(f'The header "Sec-WebSocket-Version" must be {_VERSION}.')
    if protocol not in [name.strip() for name in get("sec-websocket-protocol", "").split(",")]:
        raise InvalidParameters(f'The header "Sec-WebSocket-Protocol" must offer {protocol}.')
    key = get("sec-websocket-key", "")
    try:
        is_valid = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_valid = False
    if not is_valid:
        raise InvalidParameters('The header "Sec-WebSocket-Key" must be 16 bytes in base64.')
    return base64.b64encode(hashlib.sha1((key + _KEY_SUFFIX).encode()).digest()).decode()


def accept_token_protocol(request: Request) -> None:
    """Let a browser, which can set no header of a WebSocket, send its token as a protocol that it offers.

    The proof of a browser's login is accepted from pages of this server only.
    """
    if "authorization" in request.headers:
        return
    offered = request.headers.get("sec-websocket-protocol", "").split(",")
    # The list that `request.headers` looks into.
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    if tokens := _values(offered, TOKEN_PREFIX):
        headers.append((b"authorization", f"Bearer {tokens[0]}".encode("latin-1")))
    elif proofs := _values(offered, PROOF_PREFIX):
        # Browsers send cookies with the WebSockets of any page.
        check_own_origin(request)
        headers.append((PROOF_HEADER.encode(), proofs[0].encode("latin-1")))


def _values(protocols: list[str], prefix: str) -> list[str]:
    return [name.strip()[len(prefix) :] for name in protocols if name.strip().startswith(prefix)]


def origin_netloc(request: Request) -> str | None:
    """Host and port of the page that sends the request, as its header Origin says; None if it has none."""
    try:
        origin = urlsplit(request.headers.get("origin", ""))
    except ValueError:  # as of http://[
        return None
    return origin.netloc if origin.netloc and origin.scheme in ("http", "https") else None


def check_own_origin(request: Request) -> None:
    """Raise Forbidden for requests of other pages than those of this cluster."""
    # Behind a proxy the server may be asked for by another name than users know it by.
    own = {request.headers.get("host", ""), urlsplit(own_url(request)).netloc}
    if origin_netloc(request) not in own:
        raise Forbidden("Only pages of this cluster may use a browser's session.")
