"""The server's end of the zygote: starts it, asks it for supervisors, starts it again when it dies."""

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

_Answer = asyncio.Future[list[int]]
_DIED = "The process that starts tasks died; it is started again."
_numbers = itertools.count()


class ForkGroup:
    """Supervisors that wait for each other. They do so as children of one zygote: if it dies, all leave."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.zygote_socket: socket.socket | None = None


class Zygote:
    def __init__(self, runtime: Path):
        self._runtime = runtime
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # One for each question, by this process; answers come in the order of the questions.
        self._answers: deque[_Answer] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            # Isolated, without site-packages: what the zygote has loaded is what a supervisor needs.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(self._runtime), "zygote", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Out of the server's session: Ctrl-C at the server's terminal is not for the tasks.
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "LD_BIND_NOW": "1"},
            )
        self._socket = ours
        self._answers = deque()
        self._reader = asyncio.create_task(self._read_answers(ours, self._process, self._answers))

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        _fail(self._answers)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    async def fork(self, gang: ForkGroup, members: Sequence[tuple[Path, Cgroup]], *, last: bool) -> list[int]:
        """Fork a supervisor for each attempt folder, born in its cgroup, and give their pids.

        They go on when the last of their gang are there. When one cannot be forked none of them does, and the
        only number given is a negative error number.
        """
        told = [f"{folder}\t{group.mode}\t{group.path}" for folder, group in members]
        return await self._ask(gang, zygote.GO if last else zygote.WAIT, told)

    async def go(self, gang: ForkGroup) -> bool:
        """Those that wait go on: the gang is complete. False: their zygote has died, and they have left."""
        if self._socket is not gang.zygote_socket:
            return False
        await self._ask(gang, zygote.GO, ())
        return True

    async def drop(self, gang: ForkGroup) -> None:
        """The others of the gang will not come: those that wait leave."""
        if gang.zygote_socket is None:
            return
        with contextlib.suppress(LaunchFailed):  # it is dead, and they have left
            await self._ask(gang, zygote.DROP, ())

    async def _ask(self, gang: ForkGroup, what: bytes, members: Sequence[str]) -> list[int]:
        question = b"\0".join((b"%d\t%b" % (gang.number, what), *map(os.fsencode, members))) + b"\n"
        loop = asyncio.get_running_loop()
        answer: _Answer = loop.create_future()
        async with self._sending:
            if self._socket is None and gang.zygote_socket is None:
                await self.start()
            sock, answers = self._socket, self._answers
            if sock is None or gang.zygote_socket not in (None, sock):
                raise LaunchFailed(_DIED)
            gang.zygote_socket = sock
            # Noted before it is sent: the answer may be there before the sending returns.
            answers.append(answer)
            try:
                await loop.sock_sendall(sock, question)
            except OSError:
                if self._socket is sock:
                    self._socket = None
                _fail(answers)
        return await answer

    async def _read_answers(
        self, sock: socket.socket, process: subprocess.Popen[bytes], answers: deque[_Answer]
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
                answer = answers.popleft()
                if not answer.done():
                    answer.set_result([int(number) for number in line.split()])
        # The zygote is gone. Whoever waits tries again; the next launch starts a new one, if it has not
        # done so already.
        if self._socket is sock:
            self._socket = None
        sock.close()
        _fail(answers)
        await asyncio.to_thread(process.wait)


def _fail(answers: deque[_Answer]) -> None:
    while answers:
        answer = answers.popleft()
        if not answer.done():
            answer.set_exception(LaunchFailed(_DIED))
