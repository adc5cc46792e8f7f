"""Proxy to the cluster that misbehaves: slow, silent, closing connections, or truncating responses."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit


class FaultyProxy:
    """TCP proxy to a server. Its faults can be changed while it runs."""

    def __init__(self, url: str):
        address = urlsplit(url)
        self.to = (address.hostname or "", address.port or 0)
        self.rate = 0.0
        """Bytes per second in each direction of a connection; 0 is unlimited."""
        self.response_limit = 0
        """Close a connection after so many response bytes; 0 is unlimited."""
        self.request_limit = 0
        self.cuts = 0
        """Number of connections still to be closed at ``request_limit``; -1: all."""
        self.carried = 0
        self._forwards = threading.Event()
        self._forwards.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Forward nothing until `resume`; connections stay open, and silent."""
        self._forwards.clear()

    def resume(self) -> None:
        self._forwards.set()

    def close(self) -> None:
        self.resume()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections now."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.to, 5)
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            for pump in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        passed = 0
        try:
            while data := source.recv(1 << 14 if self.rate else 1 << 16):
                self._forwards.wait()
                limit = self.request_limit if is_request else self.response_limit
                if limit and passed + len(data) >= limit and (not is_request or self.cuts):
                    if is_request and self.cuts > 0:
                        self.cuts -= 1
                    target.sendall(data[: limit - passed])
                    break
                target.sendall(data)
                passed += len(data)
                self.carried += len(data)
                if self.rate:
                    time.sleep(len(data) / self.rate)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._open.discard(each)
