"""Client of the zygote in the server: starts it, requests supervisors, restarts it when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from paicluster.engines.interface import LaunchFailed
from pairuntime.supervisor import zygote
from pairuntime.supervisor.process_tree import Cgroup

_Reply = asyncio.Future[list[int]]
_DIED = "The process that starts tasks died; it is being restarted."
_numbers = itertools.count()


class ForkGroup:
    """Supervisors of one gang, which wait for each other.

    All are children of one zygote: if it dies, they exit.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.zygote_socket: socket.socket | None = None


class Zygote:
    def __init__(self, runtime: Path):
        self._runtime = runtime
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # One for each request to this zygote process; replies come in the order of the requests.
        self._replies: deque[_Reply] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            # Isolated, without site-packages: the zygote loads only what a supervisor needs.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(self._runtime), "zygote", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Its own session: Ctrl-C at the server's terminal must not reach the tasks.
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "LD_BIND_NOW": "1"},
            )
        self._socket = ours
        self._replies = deque()
        self._reader = asyncio.create_task(self._read_replies(ours, self._process, self._replies))

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        _fail(self._replies)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    async def fork(self, gang: ForkGroup, members: Sequence[tuple[Path, Cgroup]], *, last: bool) -> list[int]:
        """Fork a supervisor for each attempt folder, in its cgroup; returns their pids.

        They start their tasks when the whole gang is forked. If one cannot be forked none of them does, and
        the result is a single negative errno.
        """
        requests = [f"{folder}\t{group.mode}\t{group.path}" for folder, group in members]
        return await self._request(gang, zygote.GO if last else zygote.WAIT, requests)

    async def go(self, gang: ForkGroup) -> bool:
        """The gang is complete: the supervisors start. False: their zygote has died, and they have exited."""
        if self._socket is not gang.zygote_socket:
            return False
        await self._request(gang, zygote.GO, ())
        return True

    async def drop(self, gang: ForkGroup) -> None:
        """The gang is cancelled: waiting supervisors exit."""
        if gang.zygote_socket is None:
            return
        with contextlib.suppress(LaunchFailed):  # it is dead, and they have exited
            await self._request(gang, zygote.DROP, ())

    async def _request(self, gang: ForkGroup, command: bytes, members: Sequence[str]) -> list[int]:
        request = b"\0".join((b"%d\t%b" % (gang.number, command), *map(os.fsencode, members))) + b"\n"
        loop = asyncio.get_running_loop()
        reply: _Reply = loop.create_future()
        async with self._sending:
            if self._socket is None and gang.zygote_socket is None:
                await self.start()
            sock, replies = self._socket, self._replies
            if sock is None or gang.zygote_socket not in (None, sock):
                raise LaunchFailed(_DIED)
            gang.zygote_socket = sock
            # Appended before sending: the reply may arrive before the send returns.
            replies.append(reply)
            try:
                await loop.sock_sendall(sock, request)
            except OSError:
                if self._socket is sock:
                    self._socket = None
                _fail(replies)
        return await reply

    async def _read_replies(
        self, sock: socket.socket, process: subprocess.Popen[bytes], replies: deque[_Reply]
    ) -> None:
        loop = asyncio.get_running_loop()
        pending = b""
        while True:
            try:
                data = await loop.sock_recv(sock, 65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                reply = replies.popleft()
                if not reply.done():
                    reply.set_result([int(number) for number in line.split()])
        # The zygote has exited. Pending requests fail and are retried; the next launch starts a new zygote,
        # unless that has happened already.
        if self._socket is sock:
            self._socket = None
        sock.close()
        _fail(replies)
        await asyncio.to_thread(process.wait)


def _fail(replies: deque[_Reply]) -> None:
    while replies:
        reply = replies.popleft()
        if not reply.done():
            reply.set_exception(LaunchFailed(_DIED))
