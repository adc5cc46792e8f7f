"""HTTP server for the client's tests: a real socket and raw bytes, so that it can also misbehave."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pairuntime.transport import websocket


class Request:
    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.path = target.partition("?")[0]
        self.query = dict(p.partition("=")[::2] for p in target.partition("?")[2].split("&") if p)


class Peer:
    """``respond(request)`` returns raw bytes, or yields them; None closes the connection."""

    def __init__(self, respond: Callable[[Request], bytes | Iterator[bytes] | None]):
        self.respond = respond
        self.requests: list[Request] = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as f:
            while True:
                first = f.readline().decode().split()
                if len(first) < 2:
                    return
                headers = {}
                while line := f.readline().strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = f.read(int(headers.get("content-length", 0)))
                request = Request(first[0], first[1], headers, body)
                self.requests.append(request)
                data = self.respond(request)
                if data is None:
                    return
                for piece in [data] if isinstance(data, bytes) else data:
                    sock.sendall(piece)
                if not isinstance(data, bytes):
                    return

    def close(self) -> None:
        # shutdown first: it wakes the thread blocked in accept
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def reply(value: object, status: int = 200, *more: str) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def upgrade_with_first_bytes(request: Request, first: bytes, later: bytes) -> Iterator[bytes]:
    """Accept a WebSocket, with the first bytes of the new protocol in the same packet as the response."""
    accept = websocket.accept_key(request.headers["sec-websocket-key"])
    head = "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "
    yield f"{head}{accept}\r\n\r\n".encode() + first
    yield later


@pytest.fixture(name="peer")
def peer_fixture() -> Iterator[Callable[[Callable[[Request], bytes | Iterator[bytes] | None]], Peer]]:
    peers: list[Peer] = []

    def make(respond: Callable[[Request], bytes | Iterator[bytes] | None]) -> Peer:
        peers.append(Peer(respond))
        return peers[-1]

    yield make
    for p in peers:
        p.close()
