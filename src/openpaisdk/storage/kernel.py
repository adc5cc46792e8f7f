"""Bytes that do not come by: the kernel sends them from a file."""

from __future__ import annotations

import errno
import os
import select
import socket
import sys

if sys.platform == "linux":

    def send_range(sock: socket.socket, source: int, offset: int, length: int) -> None:
        """From a file to a connection. What cannot be sent raises as ``sendall`` does."""
        end = offset + length
        ready: select.poll | None = None
        while offset < end:
            try:
                sent = os.sendfile(sock.fileno(), source, offset, end - offset)
            except BlockingIOError:
                if ready is None:
                    ready = select.poll()
                    ready.register(sock, select.POLLOUT)
                limit = sock.gettimeout()
                if not ready.poll(None if limit is None else limit * 1000):
                    raise TimeoutError("timed out") from None
                continue
            if not sent:
                raise OSError(errno.EIO, "the file became shorter while it was sent")
            offset += sent

else:

    def send_range(sock: socket.socket, source: int, offset: int, length: int) -> None:
        raise NotImplementedError
