"""What a team does at once, in a process of its own, until its input ends.

`python -m bench.team_load HOST PORT TOKEN USER JOB FOLLOWERS SUBMITTERS POLLERS SESSIONS`: followers read the
log of JOB; each submitter submits a job, and each poller reads a list, once a second; each session runs `cat`
in JOB and types a key once a second. Prints "ready" when all are connected, and at the end the number of
submissions, lists and keys, and of errors.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

import uvloop

from bench.server import job
from pairuntime.transport import session_messages, websocket

PAUSE_S = 1.0


class Team:
    def __init__(self, host: str, port: str, token: str, user: str, job_name: str):
        self._address = (host, int(port))
        self._head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        self._job = f"/api/v2/jobs/{user}~{job_name}"
        self._ended = asyncio.Event()
        self._ready = 0
        self.counts = Counter(submissions=0, lists=0, keys=0, errors=0)

    async def run(self, followers: int, submitters: int, pollers: int, sessions: int) -> None:
        clients = [self._follow() for _ in range(followers)]
        clients += [self._submit(number) for number in range(submitters)]
        clients += [self._poll() for _ in range(pollers)]
        clients += [self._type() for _ in range(sessions)]
        tasks = [asyncio.create_task(client) for client in clients]
        while self._ready < len(tasks):
            failed = next((task for task in tasks if task.done()), None)
            if failed is not None:
                failed.result()
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        self._ended.set()
        await asyncio.gather(*tasks)
        print(json.dumps(self.counts), flush=True)

    async def _open(self, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._address, limit=1 << 24)
        writer.write(request.encode())
        return reader, writer

    async def _is_over(self) -> bool:
        """Wait until the next turn; true at the end."""
        try:
            await asyncio.wait_for(self._ended.wait(), PAUSE_S)
        except TimeoutError:
            return False
        return True

    async def _follow(self) -> None:
        reader, writer = await self._open(f"GET {self._job}/follow {self._head}\r\n")
        await reader.readuntil(b'"kind"')
        self._ready += 1
        reading = asyncio.create_task(_read_all(reader))
        await self._ended.wait()
        # A log that ends while the load runs was not followed.
        self.counts["errors"] += reading.done()
        reading.cancel()
        writer.close()

    async def _submit(self, number: int) -> None:
        reader, writer = await self._open("")
        self._ready += 1
        turn = 0
        while not await self._is_over():
            body = json.dumps(job(f"team-{number}-{turn}", "true")).encode()
            turn += 1
            writer.write(f"POST /api/v2/jobs {self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            self._count("submissions", await _response(reader))
        writer.close()

    async def _poll(self) -> None:
        reader, writer = await self._open("")
        self._ready += 1
        while not await self._is_over():
            writer.write(f"GET /api/v2/jobs?limit=50 {self._head}\r\n".encode())
            self._count("lists", await _response(reader))
        writer.close()

    async def _type(self) -> None:
        reader, writer = await self._open(
            f"GET {self._job}/exec {self._head}Connection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {websocket.new_key()}\r\n"
            f"Sec-WebSocket-Protocol: {session_messages.PROTOCOL}\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise RuntimeError(head.decode())
        messages = websocket.MessageReader(masked=False)
        start = session_messages.encode(session_messages.START, command=["cat"])
        writer.write(websocket.frame(websocket.TEXT, start, masked=True))
        await self._echo(reader, writer, messages)
        self._ready += 1
        while not await self._is_over():
            await self._echo(reader, writer, messages)
            self.counts["keys"] += 1
        writer.close()

    async def _echo(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: websocket.MessageReader
    ) -> None:
        """Type a key and wait until the task's `cat` has written it."""
        writer.write(websocket.frame(websocket.BINARY, b"\0x", masked=True))
        while True:
            data = await reader.read(1 << 16)
            if not data:
                raise RuntimeError("a session has ended")
            for opcode, payload in messages.feed(data):
                if opcode == websocket.BINARY and payload[:1] == b"\1":
                    return
                if opcode == websocket.CLOSE or b'"error"' in payload:
                    raise RuntimeError(f"a session has ended: {payload!r}")

    def _count(self, what: str, status: bytes) -> None:
        self.counts[what] += 1
        self.counts["errors"] += not status.startswith(b"2")


async def _response(reader: asyncio.StreamReader) -> bytes:
    """Read a whole response; returns its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().index(b"content-length: ")
    await reader.readexactly(int(head[at + 16 :].split(b"\r\n", 1)[0]))
    return head[9:12]


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


async def main() -> None:
    team = Team(*sys.argv[1:6])
    await team.run(*map(int, sys.argv[6:]))


if __name__ == "__main__":
    uvloop.run(main())
