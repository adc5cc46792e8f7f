"""A WebSocket to a server under test, opened as a browser or the SDK does."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from pairuntime.transport import session_messages, websocket
from support.server_fixture import DEADLINE_S, Cluster, Reply


class Refused(Exception):
    """The server did not open the WebSocket."""

    def __init__(self, reply: Reply):
        super().__init__(f"{reply.status}: {reply.text}")
        self.reply = reply


class WebSocket:
    """Messages of one session: ``written`` is the output by stream, ``control`` all other messages."""

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        token: str | None = "",
        protocols: str = session_messages.PROTOCOL,
        **headers: str,
    ):
        connection = cluster.connect()
        sent = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": websocket.new_key(),
            "Sec-WebSocket-Protocol": protocols,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if token is not None:
            sent["Authorization"] = f"Bearer {token or cluster.token}"
        connection.request("GET", path, headers={name: value for name, value in sent.items() if value})
        response = connection.getresponse()
        if response.status != 101:
            raise Refused(_reply(response))
        assert response.headers["Sec-WebSocket-Accept"] == websocket.accept_key(sent["Sec-WebSocket-Key"])
        self.protocol = response.headers["Sec-WebSocket-Protocol"]
        self.sock: socket.socket = connection.sock
        connection.sock = None
        self._early = _received_with_the_head(response, self.sock)
        self.sock.settimeout(DEADLINE_S)
        self._reader = websocket.MessageReader(masked=False)
        self.written = {1: b"", 2: b""}
        self.control: list[dict[str, Any]] = []
        self.close_code: int | None = None

    def send(self, kind: str, **fields: object) -> None:
        self.send_text(json.dumps({"type": kind, **fields}))

    def send_text(self, text: str) -> None:
        self.sock.sendall(websocket.frame(websocket.TEXT, text.encode(), masked=True))

    def send_stdin(self, data: bytes) -> None:
        self.sock.sendall(websocket.frame(websocket.BINARY, b"\0" + data, masked=True))

    def step(self) -> bool:
        """Receive once; False at the end of the connection."""
        data = self.receive()
        for opcode, payload in self._reader.feed(data):
            if opcode == websocket.BINARY:
                self.written[payload[0]] += payload[1:]
            elif opcode == websocket.TEXT:
                self.control.append(json.loads(payload))
            elif opcode == websocket.CLOSE:
                self.close_code = int.from_bytes(payload[:2], "big")
        return bool(data)

    def receive(self) -> bytes:
        """The next bytes, at first those that came with the response; empty at the end of the connection."""
        data, self._early = self._early, b""
        return data or self.sock.recv(1 << 16)

    def read_until(self, text: bytes, stream: int = 1) -> None:
        self.step_until(lambda: text in self.written[stream])

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Receive until a condition is true. The server's pings alone do not make it true."""
        ends = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends and self.step(), (self.written, self.control)

    def finish(self) -> dict[str, Any]:
        """Receive to the end; returns the last control message."""
        while self.step():
            pass
        self.sock.close()
        return self.control[-1] if self.control else {}


def _received_with_the_head(response: http.client.HTTPResponse, sock: socket.socket) -> bytes:
    """What the connection's buffer holds after the head: it is not read from the socket again."""
    sock.setblocking(False)
    try:
        return response.fp.peek()
    except ssl.SSLWantReadError:
        return b""


def _reply(response: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())
