"""Forwarders: processes that connect clients with ports of tasks, one for each task and token.

The server sends each connection to the forwarder of its task; the bytes do not pass through the server,
except over TLS.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from paicluster.api.connections.exec_sessions import ExecSessions
from paicluster.auth.tokens import Identity
from paiprotocol.errors import Conflict, TooManyRequests, Unavailable
from pairuntime.transport.relay import MAX_MESSAGE_BYTES, REFUSED, TIMEOUT

# Codes of errors that another attempt may not meet.
NOTHING_LISTENS = "NothingListensError"
PORT_TIMEOUT = "PortTimeoutError"

# Each has two descriptors in its forwarder, and over TLS two more in the server.
MAX_CONNECTIONS_PER_USER = 1024
MAX_CONNECTIONS = 4096

# A forwarder without connections: programs often open the next one soon.
_IDLE_TIMEOUT_S = 30.0
# The forwarder itself gives up earlier.
_OPEN_TIMEOUT_S = 60.0
# Until a forwarder has read some of many requests at once.
_FULL_SOCKET_DELAY_S = 0.005


class TaskPort(msgspec.Struct, frozen=True):
    """A port of a task."""

    # Of the task's attempt.
    uid: str
    # Of its job.
    username: str
    # The task's name in errors.
    task: str
    # Command line of its forwarder.
    command: Sequence[str]
    port: int


class Forwarders:
    """Forwarders that this server has started. Each ends with the token that it was started for."""

    def __init__(self, sessions: ExecSessions) -> None:
        self._sessions = sessions
        self._running: dict[tuple[str, str], asyncio.Task[_Forwarder]] = {}
        self._connections: Counter[str] = Counter()

    def check_limits(self, username: str) -> None:
        if self._connections[username] >= MAX_CONNECTIONS_PER_USER:
            raise TooManyRequests(
                f"User {username} has {MAX_CONNECTIONS_PER_USER} forwarded connections, which is the limit.",
                limit=MAX_CONNECTIONS_PER_USER,
                hint="Close some of them first.",
            )
        if self._connections.total() >= MAX_CONNECTIONS:
            raise TooManyRequests(
                f"The cluster has {MAX_CONNECTIONS} forwarded connections, which is its limit.",
                limit=MAX_CONNECTIONS,
            )

    def channel(self, owner: Identity, target: TaskPort, *, framed: bool = True) -> ForwardChannel:
        """A channel to a port. ``framed``: bytes are in WebSocket messages, see the protocol."""
        return ForwardChannel(lambda: self._forwarder(owner, target), target, framed)

    async def open_stream(self, owner: Identity, target: TaskPort) -> socket.socket:
        """A connection with a port, for use in the server: a socket with its bytes as they are."""
        self.check_limits(owner.username)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                channel = self.channel(owner, target, framed=False)
                await channel.start(theirs)
            await channel.proceed()
        except BaseException:
            ours.close()
            raise
        return ours

    async def _forwarder(self, owner: Identity, target: TaskPort) -> _Forwarder:
        key = target.uid, owner.token_id
        if key not in self._running:
            self._sessions.check_limits(owner.username)
            self._running[key] = asyncio.create_task(self._start(key, owner, target))
        return await asyncio.shield(self._running[key])

    async def _start(self, key: tuple[str, str], owner: Identity, target: TaskPort) -> _Forwarder:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                holders = owner.holders_in_job_of(target.username)
                await self._sessions.start_host(owner, target.command, theirs, holders)
        except BaseException:
            ours.close()
            del self._running[key]
            raise

        def count(change: int) -> None:
            self._connections[owner.username] += change
            if not self._connections[owner.username]:
                del self._connections[owner.username]

        return _Forwarder(ours, count, lambda: self._running.pop(key, None))


class ForwardChannel:
    """One connection with a port of a task."""

    def __init__(self, find: Callable[[], Awaitable[_Forwarder]], target: TaskPort, framed: bool) -> None:
        self._find = find
        self._target = target
        self._framed = framed
        self._number = 0
        self._forwarder: _Forwarder | None = None

    async def start(self, connection: socket.socket) -> None:
        self._forwarder = await self._find()
        self._number, error = await self._forwarder.open(connection, self._target.port, self._framed)
        port = f"port {self._target.port} of task {self._target.task}"
        if error == REFUSED:
            raise Conflict(f"Nothing listens on {port}.", code=NOTHING_LISTENS)
        if error == TIMEOUT:
            raise Conflict(f"No connection with {port} in time.", code=PORT_TIMEOUT)
        if error:
            raise Unavailable(f"No connection with {port}: {error}.")

    async def proceed(self) -> None:
        assert self._forwarder is not None
        await self._forwarder.send({"start": self._number})


class _Forwarder:
    """The server's end of a forwarder's control socket."""

    def __init__(
        self, control: socket.socket, count: Callable[[int], None], on_end: Callable[[], object]
    ) -> None:
        self._control = control
        self._count = count
        self._on_end = on_end
        self._numbers = itertools.count(1)
        self._opening: dict[int, asyncio.Future[str]] = {}
        self._open: set[int] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        control.setblocking(False)
        self._loop.add_reader(control, self._on_message)

    async def open(self, connection: socket.socket, port: int, framed: bool) -> tuple[int, str]:
        """Open a connection: its number, and why it could not be opened (empty if it was)."""
        number = next(self._numbers)
        answer = self._opening[number] = self._loop.create_future()
        self._open.add(number)
        self._count(1)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            await self.send({"open": number, "port": port, "framed": framed}, connection)
            async with asyncio.timeout(_OPEN_TIMEOUT_S):
                error = await answer
        except TimeoutError:
            error = TIMEOUT
        except BaseException:
            self._release(number)
            raise
        if error:
            self._release(number)
        return number, error

    async def send(self, message: dict[str, object], connection: socket.socket | None = None) -> None:
        data = json.dumps(message).encode()
        fds = [] if connection is None else [connection.fileno()]
        while True:
            try:
                socket.send_fds(self._control, [data], fds)
            except BlockingIOError:
                # Not add_writer: several callers may wait.
                await asyncio.sleep(_FULL_SOCKET_DELAY_S)
                continue
            except OSError:
                pass  # it has ended, which the next event tells
            return

    def _on_message(self) -> None:
        try:
            data = self._control.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        message = json.loads(data)
        if "ended" in message:
            self._release(message["ended"])
        elif (answer := self._opening.pop(message["id"], None)) is not None and not answer.done():
            answer.set_result(message.get("error", ""))

    def _release(self, number: int) -> None:
        self._opening.pop(number, None)
        if number in self._open:
            self._open.discard(number)
            self._count(-1)
        if not self._open and self._control.fileno() >= 0:
            self._idle_timer = self._loop.call_later(_IDLE_TIMEOUT_S, self._close)

    def _close(self) -> None:
        """Close the control socket. The forwarder has ended, or ends when it notices that."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        self._on_end()
        for answer in self._opening.values():
            if not answer.done():
                answer.set_result("the task has ended, or cannot be reached")
        for number in tuple(self._open):
            self._release(number)
