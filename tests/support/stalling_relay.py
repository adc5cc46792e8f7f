"""A relay to a server that can stop to forward: the server seems to have stopped answering."""

from __future__ import annotations

import contextlib
import socket
import threading


class StallingRelay:
    """``port`` leads to another port of this machine. While it is stalled, connections stay silent."""

    def __init__(self, target_port: int):
        self._target_port = target_port
        self._forwards = threading.Event()
        self._forwards.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        self._forwards.clear()

    def resume(self) -> None:
        self._forwards.set()

    def close(self) -> None:
        self.resume()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._forwards.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
