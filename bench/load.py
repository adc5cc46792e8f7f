"""Load generator for small requests, in a process of its own and cheap enough that the server is measured.

`python -m bench.load HOST PORT PATH CONNECTIONS SECONDS TOKEN [METHOD] < bodies` sends the bodies, one per
line, and prints the number of responses, the number of errors among them, and the seconds it took.
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop


class Client(asyncio.Protocol):
    """HTTP client on one connection: sends the next request when a response is complete."""

    def __init__(self, requests: list[bytes], until: float, done: asyncio.Future[None]):
        self._requests = requests
        self._until = until
        self._done = done
        self._pending = b""
        self.responses = 0
        self.errors = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if not self._requests or time.perf_counter() >= self._until:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._transport.write(self._requests.pop())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._pending += data
        head, end, rest = self._pending.partition(b"\r\n\r\n")
        if not end:
            return
        at = head.lower().find(b"content-length: ")
        size = int(head[at + 16 :].split(b"\r\n", 1)[0])
        if len(rest) < size:
            return
        self.responses += 1
        if not head.startswith(b"HTTP/1.1 2"):
            self.errors += 1
        self._pending = b""
        self._next()


async def main(
    host: str, port: int, path: str, connections: int, seconds: float, token: str, method: str = "POST"
) -> None:
    bodies = sys.stdin.buffer.read().splitlines()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    requests = [head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in reversed(bodies)]
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    clients, waits = [], []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        client = Client(requests, began + seconds, done)
        await loop.create_connection(lambda client=client: client, host, port)  # type: ignore[misc]
        clients.append(client)
        waits.append(done)
    await asyncio.gather(*waits)
    took = time.perf_counter() - began
    responses, errors = sum(c.responses for c in clients), sum(c.errors for c in clients)
    print(responses, errors, took)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    uvloop.run(
        main(
            arguments[0],
            int(arguments[1]),
            arguments[2],
            int(arguments[3]),
            float(arguments[4]),
            *arguments[5:],
        )
    )
