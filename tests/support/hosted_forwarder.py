"""A forwarder that a test starts itself, as the server does."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
from collections.abc import Sequence

DEADLINE_S = 90.0


class HostedForwarder:
    """A forwarder with this command line, and connections through it."""

    def __init__(self, words: Sequence[str]):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(DEADLINE_S)
        with theirs:
            self.process = subprocess.Popen(list(words), stdin=theirs, start_new_session=True)
        self._numbers = itertools.count(1)
        # Numbers of connections whose end was reported.
        self.ended: list[int] = []

    def open(self, port: int) -> socket.socket | str:
        """A connection with a port of the task, or why there is none."""
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs:
            message = json.dumps({"open": number, "port": port, "framed": False}).encode()
            socket.send_fds(self._control, [message], [theirs.fileno()])
        answer = self.receive()
        while "ended" in answer:
            answer = self.receive()
        assert answer["id"] == number
        if "error" in answer:
            ours.close()
            return str(answer["error"])
        self._control.send(json.dumps({"start": number}).encode())
        ours.settimeout(DEADLINE_S)
        return ours

    def receive(self) -> dict[str, object]:
        data = self._control.recv(4096)
        assert data, "the forwarder has ended"
        message: dict[str, object] = json.loads(data)
        if "ended" in message:
            self.ended.append(int(str(message["ended"])))
        return message

    def wait_for_end(self) -> None:
        """Wait until the forwarder itself has ended."""
        while self._control.recv(4096):
            pass
        self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """Go away, as a server that is killed; returns when the forwarder has ended."""
        self._control.close()
        self.process.wait(DEADLINE_S)
