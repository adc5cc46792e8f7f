"""The server's end of the zygote: starts it, asks it for supervisors, starts it again when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import defaultdict, deque
from pathlib import Path

from paicluster.engines.interface import LaunchFailed


class Zygote:
    def __init__(self, runtime: Path):
        self._runtime = runtime
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: dict[str, deque[asyncio.Future[int]]] = defaultdict(deque)
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
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            )
        self._socket = ours
        self._reader = asyncio.create_task(self._read_answers(ours))

    async def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._reader is not None:
            self._reader.cancel()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    async def launch(self, folders: list[Path]) -> list[int]:
        """Fork a supervisor for each folder. Gives pids, or negative error numbers."""
        if self._socket is None:
            await self.start()
        loop = asyncio.get_running_loop()
        futures = []
        for folder in folders:
            future: asyncio.Future[int] = loop.create_future()
            self._answers[str(folder)].append(future)
            futures.append(future)
        async with self._sending:
            if self._socket is not None:
                try:
                    await loop.sock_sendall(self._socket, b"".join(os.fsencode(f) + b"\n" for f in folders))
                except OSError:
                    self._fail_all()
        return await asyncio.gather(*futures)

    async def _read_answers(self, sock: socket.socket) -> None:
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
                number, _, folder = line.partition(b" ")
                self._answer(os.fsdecode(folder), int(number))
        # The zygote is gone. Whoever waits tries again; the next launch starts a new one.
        self._socket = None
        sock.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        self._fail_all()

    def _answer(self, folder: str, number: int) -> None:
        waiting = self._answers.get(folder)
        if waiting:
            future = waiting.popleft()
            if not waiting:
                del self._answers[folder]
            if not future.done():
                future.set_result(number)

    def _fail_all(self) -> None:
        for waiting in self._answers.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(
                        LaunchFailed("The process that starts tasks died; it is started again.")
                    )
        self._answers.clear()
