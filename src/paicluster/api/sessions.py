"""Sessions: processes that serve the connections of clients to running tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any, cast

from openpaisdk.errors import TooManyRequests
from paicluster.auth.tokens import Identity, Tokens

log = logging.getLogger(__name__)

PROTOCOL = "pai.session.v1"

# Each session is a process, and so is what forwards the ports of one task.
MAX_SESSIONS_PER_USER = 256
MAX_SESSIONS = 1024

# How long a session may go on after its token has expired.
_TOKEN_CHECK_S = 60.0
# The host gets nothing else of the server's environment.
_HOST_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "SLURM_CONF")


class Sessions:
    """Session hosts that this server has started. Each ends with the token that opened its session; one that
    was opened for a job, also when its user is disabled."""

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

    async def start_host(
        self,
        owner: Identity,
        command: Sequence[str],
        connection: socket.socket,
        holders: Sequence[str] | None = None,
    ) -> asyncio.Task[None]:
        """Start a process with this standard input for a user; returns what waits for its end.

        ``holders``: what it ends with, if not with those of its owner.
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
        watch = asyncio.create_task(self._watch(owner, owner.holders if holders is None else holders, host))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return watch

    async def _watch(self, owner: Identity, holders: Sequence[str], host: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a host; end it with any of its holders."""
        ended = asyncio.create_task(_wait_for_end(host))
        changed = asyncio.Event()
        try:
            with self._tokens.watch_all(holders, changed.set):
                while not ended.done():
                    changed.clear()
                    if not await self._tokens.are_live(holders):
                        host.terminate()
                        break
                    await _wait_for_first(ended, changed)
            errors = await ended
        finally:
            ended.cancel()
            self._release(owner.username)
        if host.returncode:
            log.error("A session host ended with %d: %s", host.returncode, errors.decode(errors="replace"))

    def _release(self, username: str) -> None:
        self._running[username] -= 1
        if not self._running[username]:
            del self._running[username]


async def _wait_for_end(host: subprocess.Popen[bytes]) -> bytes:
    """What a host wrote to stderr, which it closes when it exits."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), cast(IO[bytes], host.stderr)
    )
    errors = await reader.read()
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

    def __init__(self, sessions: Sessions, owner: Identity, command: Sequence[str]):
        self._sessions = sessions
        self._owner = owner
        self._command = command

    async def start(self, connection: socket.socket) -> None:
        await self._sessions.start_host(self._owner, self._command, connection)

    async def proceed(self) -> None:
        """The host sends nothing before the client does, and the client waits for the response."""
