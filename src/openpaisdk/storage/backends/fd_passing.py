"""File-descriptor passing: a cluster on the same machine opens the file and passes its descriptor.

It authenticates and authorises the client as over HTTP, and passes a descriptor through a Unix socket, never
a path. The bytes are then copied from file to file. Imported on Linux only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from openpaisdk.client.http_errors import error_from_response
from openpaisdk.storage.backends.base import DescriptorChannel, changed_error, content_key
from openpaisdk.storage.backends.connection_pool import with_retries
from openpaisdk.storage.backends.descriptor_io import DescriptorSource
from paiprotocol.errors import ConnectionFailed, PaiError

assert sys.platform == "linux"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Invite = Callable[[], dict[str, object]]
    """Requests, over HTTP, the socket's name, a ticket, and the pid and uid of the server."""

CONNECTION_TIMEOUT_S = 60.0


def connect(invite: Invite) -> FdChannel | None:
    """Connect; None when the socket cannot be reached (another network namespace)."""
    try:
        return FdChannel(invite)
    except (OSError, PaiError):
        return None


class FdChannel(DescriptorChannel):
    """One connection with the cluster, shared by all threads: one request and its response at a time."""

    def __init__(self, invite: Invite):
        """``invite`` is called for every connection: again after the server has restarted."""
        self._invite = invite
        self._lock = threading.Lock()
        self._buffer = b""
        self._sock = self._connect()

    def _connect(self) -> socket.socket:
        invitation = self._invite()
        self._buffer = b""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(CONNECTION_TIMEOUT_S)
            self._sock.connect("\0" + str(invitation["socket"]))
            self._check_peer(invitation)
            self._exchange({"ticket": invitation["ticket"]})
        except BaseException:
            self._sock.close()
            raise
        return self._sock

    def _check_peer(self, invitation: dict[str, object]) -> None:
        """Any process can bind an abstract socket name after the server exited: check that it is ours."""
        import struct

        raw = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        if pid != invitation.get("pid") or uid != invitation.get("uid"):
            raise ConnectionFailed(
                "The process on the local transfer socket is not the cluster server "
                f"(expected pid {invitation.get('pid')})."
            )

    def open(self, path: str, display_path: str) -> PassedFile:
        fd, response = self._request({"op": "open", "path": path})
        if fd < 0:
            raise ConnectionFailed(f"The cluster passed no descriptor for {display_path}.")
        return PassedFile(fd, response, display_path)

    def create(self, upload_request: dict[str, object]) -> tuple[int, dict[str, object]]:
        return self._request({**upload_request, "op": "begin"})

    def mark_written(self, upload: str, offset: int, length: int, digest: bytes) -> None:
        written = {"id": upload, "offset": offset, "length": length, "digest": digest.hex()}
        self._request({**written, "op": "mark"})

    def finish(self, upload: str, completion: dict[str, object]) -> None:
        self._request({**completion, "op": "finish", "id": upload})

    def _request(self, message: dict[str, object]) -> tuple[int, dict[str, object]]:
        """Every request is idempotent, so one that was lost with its server is sent to the next server."""
        line, fd = with_retries(lambda: self._send_with_reconnect(message))
        response = json.loads(line)
        if "code" in response:
            if fd >= 0:
                os.close(fd)
            raise error_from_response(int(response.get("status") or 500), line, "The cluster on this machine")
        return fd, response

    def _send_with_reconnect(self, message: dict[str, object]) -> tuple[bytes, int]:
        # No thread sleeps while it holds the lock: the retry windows of all threads run at the same time.
        with self._lock:
            try:
                return self._exchange(message)
            except (OSError, ConnectionFailed):
                self._sock.close()
            try:
                self._connect()
                return self._exchange(message)
            except OSError as e:
                raise ConnectionFailed(
                    f"The cluster on this machine does not respond: {e.strerror or e}."
                ) from None

    def _exchange(self, message: dict[str, object]) -> tuple[bytes, int]:
        fd = -1
        self._sock.sendall(json.dumps(message).encode() + b"\n")
        while b"\n" not in self._buffer:
            data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 1)
            if fds:
                fd = fds[0]
            if not data:
                raise ConnectionFailed("The cluster closed the connection during a local transfer.")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line, fd

    def close(self) -> None:
        self._sock.close()


class PassedFile(DescriptorSource):
    def __init__(self, fd: int, response: dict[str, object], display_path: str):
        self.fd = fd
        self.what = display_path
        self.opened = os.fstat(fd)
        self.size = self.opened.st_size
        self.mtime_ns = self.opened.st_mtime_ns
        mode = response.get("mode")
        self.mode = mode if isinstance(mode, int) else 0o644
        self.key = content_key(display_path, self.size, self.mtime_ns)

    def check(self) -> None:
        now = os.fstat(self.fd)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed_error(self.what)
