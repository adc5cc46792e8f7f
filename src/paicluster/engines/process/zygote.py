"""The server's end of the zygote: starts it, asks it for supervisors, starts it again when it dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from paicluster.engines.interface import LaunchFailed
from pairuntime.supervisor.tree import Cgroup

_Answer = asyncio.Future[list[int]]


class Zygote:
    def __init__(self, runtime: Path):
        self._runtime = runtime
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # One for each gang asked for, by this process; answers come in the order of the questions.
        self._answers: deque[_Answer] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._gangs = itertools.count()
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
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
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

    async def fork(self, members: Sequence[tuple[Path, Cgroup]]) -> Waiting:
        """A supervisor for each attempt folder, born in its cgroup. They wait for a word: see `Waiting`."""
        question = b"\0".join(os.fsencode(f"{folder}\t{g.mode}\t{g.path}") for folder, g in members)
        answer: _Answer = asyncio.get_running_loop().create_future()
        async with self._sending:
            if self._socket is None:
                await self.start()
            sock, answers = self._socket, self._answers
            assert sock is not None
            gang = Waiting(self, sock, next(self._gangs), answer)
            # Noted before it is sent: the answer may be there before the sending returns.
            answers.append(answer)
            await self._send(sock, answers, b"fork %d %b\n" % (gang.number, question))
        return gang

    async def _tell(self, gang: Waiting, word: bytes) -> None:
        async with self._sending:
            if self._socket is gang.sock:
                await self._send(gang.sock, self._answers, b"%b %d\n" % (word, gang.number))

    async def _send(self, sock: socket.socket, answers: deque[_Answer], data: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(sock, data)
        except OSError:
            if self._socket is sock:
                self._socket = None
            _fail(answers)

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


class Waiting:
    """Supervisors of one gang that were asked for, and start nothing before they are told."""

    def __init__(self, zygote: Zygote, sock: socket.socket, number: int, pids: _Answer):
        self._zygote = zygote
        self.sock = sock
        self.number = number
        self._pids = pids

    async def go(self) -> list[int]:
        """Let them go on, and give their pids.

        All or none: when one could not be forked, the only number given is a negative error number.
        """
        await self._zygote._tell(self, b"go")
        return await self._pids

    async def leave(self) -> None:
        """They are not needed after all, and leave without a trace."""
        if not self._pids.cancel() and not self._pids.cancelled():
            self._pids.exception()  # whatever it was, it is of no concern any more
        await self._zygote._tell(self, b"no")


def _fail(answers: deque[_Answer]) -> None:
    while answers:
        answer = answers.popleft()
        if not answer.done():
            answer.set_exception(LaunchFailed("The process that starts tasks died; it is started again."))
