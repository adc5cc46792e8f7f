"""Sending of file ranges by the kernel (sendfile), without copying them through this process."""

from __future__ import annotations

import errno
import os
import select
import socket
import sys

if sys.platform == "linux":
    # Some file systems do not support sendfile.
    _UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

    def send_range(sock: socket.socket, source: int, offset: int, length: int) -> bool:
        """Send a range of a file over a connection; raises like ``http1.send_all``.

        False when sendfile does not support this file; then nothing was sent.
        """
        start, end = offset, offset + length
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
            except OSError as e:
                if e.errno in _UNSUPPORTED and offset == start:
                    return False
                raise
            if not sent:
                raise OSError(errno.EIO, "the file became shorter while it was sent")
            offset += sent
        return True

else:

    def send_range(sock: socket.socket, source: int, offset: int, length: int) -> bool:
        return False
