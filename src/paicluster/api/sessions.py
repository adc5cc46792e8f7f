"""Sessions: hands a client's WebSocket to a session host, a process of its own.

The host speaks WebSocket itself, so that neither its bytes nor its life depend on the server: without TLS it
gets the client's own socket and outlives a restart of the server. With TLS the server decrypts and copies.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
import os
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openpaisdk.errors import InvalidParameters, PaiError, TooManyRequests, Unavailable
from paicluster.api.responses import error_response
from paicluster.auth.tokens import Identity, Tokens

log = logging.getLogger(__name__)

PROTOCOL = "pai.session.v1"
# A browser can set no header but this one: it offers its token as a second protocol.
TOKEN_PREFIX = b"bearer."

# Each session is a process; a user's forwarded connections are sessions, too.
MAX_SESSIONS_PER_USER = 256
MAX_SESSIONS = 1024

_VERSION = "13"
_KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# A client whose machine has vanished is noticed after a minute without traffic.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
# How long a session may go on after its token has expired.
_TOKEN_CHECK_S = 60.0
# The host gets nothing else of the server's environment.
_HOST_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "SLURM_CONF")


class Sessions:
    """Session hosts that this server has started. Each ends with the token that opened its session."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._running: Counter[str] = Counter()
        self._watches: set[asyncio.Task[None]] = set()

    def check_limits(self, username: str) -> None:
        if self._running[username] >= MAX_SESSIONS_PER_USER:
            raise TooManyRequests(
                f"User {username} has {MAX_SESSIONS_PER_USER} open sessions, which is the limit.",
                limit=MAX_SESSIONS_PER_USER,
                hint="End some of them first.",
            )
        if self._running.total() >= MAX_SESSIONS:
            raise TooManyRequests(
                f"The cluster has {MAX_SESSIONS} open sessions, which is its limit.", limit=MAX_SESSIONS
            )

    async def start_host(self, owner: Identity, words: Sequence[str], connection: socket.socket) -> None:
        """Start a host that serves this connection of a user."""
        self._running[owner.username] += 1
        try:
            host = await asyncio.create_subprocess_exec(
                *words,
                stdin=connection.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # Its own session: Ctrl-C at the server's terminal must not reach it.
                start_new_session=True,
                cwd="/",
                env={
                    **{name: os.environ[name] for name in _HOST_VARIABLES if name in os.environ},
                    "LANG": "C.UTF-8",
                },
            )
        except BaseException:
            self._release(owner.username)
            raise
        watch = asyncio.create_task(self._watch(owner, host))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, owner: Identity, host: asyncio.subprocess.Process) -> None:
        """Wait for the end of a host; end it with its user's token."""
        ended = asyncio.create_task(host.communicate())
        changed = asyncio.Event()
        try:
            with self._tokens.watch(owner.token_id, changed.set):
                while not ended.done():
                    changed.clear()
                    if not await self._tokens.is_live(owner.token_id):
                        with contextlib.suppress(ProcessLookupError):
                            host.terminate()
                        break
                    await _wait_for_first(ended, changed)
            _, errors = await ended
        finally:
            ended.cancel()
            self._release(owner.username)
        if host.returncode:
            log.error("A session host ended with %d: %s", host.returncode, errors.decode(errors="replace"))

    def _release(self, username: str) -> None:
        self._running[username] -= 1
        if not self._running[username]:
            del self._running[username]


async def _wait_for_first(ended: asyncio.Task[Any], changed: asyncio.Event) -> None:
    change = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait((ended, change), timeout=_TOKEN_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()


class SessionResponse(Response):
    """The response that opens a session: 101, after which the connection belongs to a host."""

    def __init__(self, sessions: Sessions, owner: Identity, words: Sequence[str], accept: str):
        super().__init__(status_code=101)
        self._sessions = sessions
        self._owner = owner
        self._words = words
        self._accept = accept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            cycle, transport = _uvicorn_connection(receive)
            transport.pause_reading()
            is_encrypted = transport.get_extra_info("sslcontext") is not None
            _keep_alive(transport)
            await (self._relay(transport) if is_encrypted else self._hand_over(transport))
        except PaiError as error:
            await error_response(error)(scope, receive, send)
            return
        except OSError as error:
            failed = Unavailable(f"The session could not be started: {error.strerror or error}.")
            await error_response(failed)(scope, receive, send)
            return
        # For uvicorn the response is complete, and the connection is closed.
        cycle.response_started = cycle.response_complete = True
        if not is_encrypted:
            transport.close()

    def _head(self) -> bytes:
        return (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {self._accept}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        ).encode()

    async def _hand_over(self, transport: asyncio.Transport) -> None:
        """Give the client's own socket to a host."""
        fd = os.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=fd) as connection:
            await self._sessions.start_host(self._owner, self._words, connection)
            # The host sends nothing before the client does, and the client waits for this.
            with contextlib.suppress(OSError):  # the client has gone: the host notices it
                connection.send(self._head())

    async def _relay(self, transport: asyncio.Transport) -> None:
        """Copy between the encrypted connection and a host."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._sessions.start_host(self._owner, self._words, theirs)
            to_client = _Relay(transport)
            host, _ = await asyncio.get_running_loop().create_connection(lambda: to_client, sock=ours)
        except BaseException:
            ours.close()
            raise
        protocol: Any = transport.get_protocol()
        protocol.connections.discard(protocol)
        transport.set_protocol(_Relay(host))
        transport.write(self._head())
        transport.resume_reading()


class _Relay(asyncio.Protocol):
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
    """uvicorn's objects of a connection."""
    cycle: Any = getattr(receive, "__self__", None)
    transport = getattr(cycle, "transport", None)
    if transport is None or transport.get_extra_info("socket") is None:
        raise Unavailable("Sessions need a running server.")
    return cycle, transport


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def accept_upgrade(request: Request) -> str:
    """Value of Sec-WebSocket-Accept for a request to open a session; raises InvalidParameters for others."""
    get = request.headers.get
    if get("upgrade", "").lower() != "websocket":
        raise InvalidParameters(
            "This API is a WebSocket: send the headers of an upgrade.",
            status=426,
            code="UpgradeRequiredError",
        )
    if get("sec-websocket-version") != _VERSION:
        raise InvalidParameters(f'The header "Sec-WebSocket-Version" must be {_VERSION}.')
    if PROTOCOL not in [one.strip() for one in get("sec-websocket-protocol", "").split(",")]:
        raise InvalidParameters(f'The header "Sec-WebSocket-Protocol" must offer {PROTOCOL}.')
    key = get("sec-websocket-key", "")
    try:
        is_valid = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_valid = False
    if not is_valid:
        raise InvalidParameters('The header "Sec-WebSocket-Key" must be 16 bytes in base64.')
    return base64.b64encode(hashlib.sha1((key + _KEY_SUFFIX).encode()).digest()).decode()
