"""Exec sessions: processes that serve the connections of clients to running tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any, cast

from paicluster.auth.tokens import Identity, Tokens
from paiprotocol.errors import TooManyRequests

log = logging.getLogger(__name__)


# Each session is a process of 4 MB, and so is what forwards the ports of one task.
MAX_SESSIONS_PER_USER = 256
MAX_SESSIONS = 1024
# The processes of a user take a sixteenth of the server's memory at most, those of all users a quarter.
MEMORY_MB_PER_SESSION_OF_USER = 64
MEMORY_MB_PER_SESSION = 16
# On small machines.
_MIN_SESSIONS_PER_USER = 16
_MIN_SESSIONS = 64

# How long a session may go on after its token has expired.
_TOKEN_CHECK_S = 60.0
# The host gets nothing else of the server's environment.
_HOST_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "SLURM_CONF")


def session_limits(memory_mb: int) -> tuple[int, int]:
    """Open sessions of a user and of a server with this memory, at most."""
    per_user = max(_MIN_SESSIONS_PER_USER, memory_mb // MEMORY_MB_PER_SESSION_OF_USER)
    total = max(_MIN_SESSIONS, memory_mb // MEMORY_MB_PER_SESSION)
    return min(MAX_SESSIONS_PER_USER, per_user), min(MAX_SESSIONS, total)


class ExecSessions:
    """Session hosts that this server has started. Each ends with the token that opened its session, and with
    the rights that it needed: see `Identity.holders_in_job_of`."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        max_per_user: int = MAX_SESSIONS_PER_USER,
        max_total: int = MAX_SESSIONS,
    ) -> None:
        self._tokens = tokens
        self._max_per_user = max_per_user
        self._max_total = max_total
        self._running: Counter[str] = Counter()
        self._watches: set[asyncio.Task[None]] = set()

    def check_limits(self, username: str) -> None:
        if self._running[username] >= self._max_per_user:
            raise TooManyRequests(
                f"User {username} has {self._max_per_user} open sessions, which is the limit.",
                limit=self._max_per_user,
                hint="End some of them first.",
            )
        if self._running.total() >= self._max_total:
            raise TooManyRequests(
                f"The cluster has {self._max_total} open sessions, which is its limit.",
                limit=self._max_total,
            )

    async def start_host(
        self,
        owner: Identity,
        command: Sequence[str],
        connection: socket.socket,
        holders: Sequence[str],
    ) -> asyncio.Task[None]:
        """Start a process with this standard input for a user; returns what waits for its end.

        ``holders``: what it ends with, see `Tokens.is_live`.
        """
        self._running[owner.username] += 1
        try:
            # Not by asyncio: uvloop forks, which takes long in a large process. This one shares its memory
            # with the child until that has called exec (vfork).
            host = subprocess.Popen(
                command,
                stdin=connection.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
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
        watch = asyncio.create_task(self._watch(owner, holders, host))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return watch

    async def _watch(self, owner: Identity, holders: Sequence[str], host: subprocess.Popen[bytes]) -> None:
        """Wait until a host ends; end it as soon as one of its holders ends."""
        ended = asyncio.create_task(_wait_for_end(host))
        changed = asyncio.Event()
        was_stopped = False
        try:
            with self._tokens.watch_all(holders, changed.set):
                while not ended.done():
                    changed.clear()
                    if not await self._tokens.are_live(holders):
                        host.terminate()
                        was_stopped = True
                        break
                    await _wait_for_first(ended, changed)
            errors = await ended
        finally:
            ended.cancel()
            self._release(owner.username)
        # Ended by this server with the job or the token, or with the machine's other programs.
        if host.returncode and not was_stopped and host.returncode != -signal.SIGTERM:
            log.error("A session host ended with %d: %s", host.returncode, errors.decode(errors="replace"))

    def _release(self, username: str) -> None:
        self._running[username] -= 1
        if not self._running[username]:
            del self._running[username]


async def _wait_for_end(host: subprocess.Popen[bytes]) -> bytes:
    """What a host wrote to stderr, which it closes when it exits."""
    reader = asyncio.StreamReader()
    with cast(IO[bytes], host.stderr) as pipe:
        # uvloop closes the number of a pipe itself. The pipe would do so, too, when it is deleted, and close
        # whatever has the number by then.
        duplicate = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0, closefd=False)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), duplicate
    )
    try:
        errors = await reader.read()
    finally:
        transport.close()
    await asyncio.to_thread(host.wait)
    return errors


async def _wait_for_first(ended: asyncio.Task[Any], changed: asyncio.Event) -> None:
    change = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait((ended, change), timeout=_TOKEN_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()


class SessionChannel:
    """The connection of one exec session: it becomes the standard input of a host."""

    def __init__(
        self, sessions: ExecSessions, owner: Identity, command: Sequence[str], holders: Sequence[str]
    ) -> None:
        self._sessions = sessions
        self._owner = owner
        self._command = command
        self._holders = holders

    async def start(self, connection: socket.socket) -> None:
        await self._sessions.start_host(self._owner, self._command, connection, self._holders)

    async def proceed(self) -> None:
        """The host sends nothing before the client does, and the client waits for the response."""
