"""Services for tests of forwarded ports: programs that a task runs, and clients of them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

DEADLINE_S = 90.0

# Listens on a free port, which it writes into the file `port` and to stdout, and echoes what each connection
# sends, to the end of its input; then it sends "bye" and ends the connection.
ECHO = """
import os, socket, threading
def serve(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)
        connection.sendall(b"bye")
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
with open("port.new", "w") as f:
    f.write(str(listener.getsockname()[1]))
os.rename("port.new", "port")
print("port", listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


# What servers of SSH, SMTP, MySQL and VNC do: they speak first.
BANNER = b"220 ready\r\n"


class EchoServer:
    """An echo service of the test itself, on loopback: of tasks that share it, a port like their own.

    ``banner``: what each connection gets first.
    """

    def __init__(self, banner: bytes = b"") -> None:
        self._banner = banner
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._banner)
            while data := connection.recv(1 << 16):
                connection.sendall(data)
            connection.sendall(b"bye")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def receive_all(sock: socket.socket) -> bytes:
    """Everything to the end of the connection; a reset is an error."""
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def exchange(port: int, data: bytes) -> bytes:
    """Send the data, end this direction, and return what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return receive_all(sock)


class BannerServer(EchoServer):
    """Says its banner and ends the connection, without waiting for anything."""

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._banner)


def outcomes_of_connections(port: int, data: bytes, count: int, *, at_once: int = 4) -> Counter[bytes | str]:
    """What so many connections with a port received, and how often."""

    def outcome(_: int) -> bytes | str:
        try:
            return exchange(port, data)
        except OSError as e:
            return str(e)

    with ThreadPoolExecutor(at_once) as pool:
        return Counter(pool.map(outcome, range(count)))
