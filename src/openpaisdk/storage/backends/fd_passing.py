"""Where client and cluster share a machine, bytes need not travel: the cluster hands over an open file.

It checks who asks and what he may do, as over HTTP, and passes a descriptor through a Unix socket; never a
path. The kernel then copies from file to file. Imported on Linux only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from openpaisdk.client.http_errors import error_from_response
from openpaisdk.errors import ConnectionFailed, PaiError
from openpaisdk.storage.backends.base import Handover, changed, key_of
from openpaisdk.storage.backends.connection_pool import with_retries
from openpaisdk.storage.backends.descriptor_io import DescriptorSource

assert sys.platform == "linux"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.storage.backends.cluster import ClusterBackend

LOCAL = "/api/v2/transfer/local"
SESSION_TIMEOUT_S = 60.0


def connect(backend: ClusterBackend) -> FdChannel | None:
    """Go to where the cluster waits; None when it cannot be reached there (another network namespace)."""

    def invited() -> dict[str, object]:
        return backend._answer_of(backend._ask("POST", LOCAL, {}, b""), "the way through the kernel")

    try:
        return FdChannel(invited)
    except (OSError, PaiError):
        return None


class FdChannel(Handover):
    """One conversation with the cluster, shared by all threads: each asks and waits for its answer."""

    def __init__(self, invited: Callable[[], dict[str, object]]):
        """``invited`` asks over HTTP where to go and for a ticket; again when a server was started anew."""
        self._invited = invited
        self._lock = threading.Lock()
        self._buffer = b""
        self._sock = self._connected()

    def _connected(self) -> socket.socket:
        said = self._invited()
        self._buffer = b""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(SESSION_TIMEOUT_S)
            self._sock.connect("\0" + str(said["socket"]))
            self._check_peer(said)
            self._exchange({"ticket": said["ticket"]})
        except BaseException:
            self._sock.close()
            raise
        return self._sock

    def _check_peer(self, said: dict[str, object]) -> None:
        """Names of such sockets are free for anybody to take once a server is gone: is it really ours?"""
        import struct

        raw = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        if pid != said.get("pid") or uid != said.get("uid"):
            raise ConnectionFailed("Somebody else waits where the cluster said it would.")

    def open(self, path: str, shown: str) -> PassedFile:
        fd, said = self._ask({"op": "open", "path": path})
        if fd < 0:
            raise ConnectionFailed(f"{shown} was not handed over.")
        return PassedFile(fd, said, shown)

    def create(self, about: dict[str, object]) -> tuple[int, dict[str, object]]:
        return self._ask({**about, "op": "begin"})

    def mark(self, upload: str, offset: int, length: int, digest: bytes) -> None:
        said = {"id": upload, "offset": offset, "length": length, "digest": digest.hex()}
        self._ask({**said, "op": "mark"})

    def finish(self, upload: str, said: dict[str, object]) -> None:
        self._ask({**said, "op": "finish", "id": upload})

    def _ask(self, question: dict[str, object]) -> tuple[int, dict[str, object]]:
        """Every question may be asked twice, so one that was lost with its server is asked of the next."""
        line, fd = with_retries(lambda: self._asked(question))
        said = json.loads(line)
        if "code" in said:
            if fd >= 0:
                os.close(fd)
            raise error_from_response(int(said.get("status") or 500), line, "The cluster on this machine")
        return fd, said

    def _asked(self, question: dict[str, object]) -> tuple[bytes, int]:
        # Nobody pauses while he has the lock: the patience of all threads runs at the same time.
        with self._lock:
            try:
                return self._exchange(question)
            except (OSError, ConnectionFailed):
                self._sock.close()
            try:
                self._connected()
                return self._exchange(question)
            except OSError as e:
                raise ConnectionFailed(
                    f"The cluster on this machine does not answer: {e.strerror or e}."
                ) from None

    def _exchange(self, question: dict[str, object]) -> tuple[bytes, int]:
        fd = -1
        self._sock.sendall(json.dumps(question).encode() + b"\n")
        while b"\n" not in self._buffer:
            data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 1)
            if fds:
                fd = fds[0]
            if not data:
                raise ConnectionFailed("The cluster hung up while a file was handed over.")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line, fd

    def close(self) -> None:
        self._sock.close()


class PassedFile(DescriptorSource):
    def __init__(self, fd: int, said: dict[str, object], shown: str):
        self.fd = fd
        self.what = shown
        self.opened = os.fstat(fd)
        self.size = self.opened.st_size
        self.mtime_ns = self.opened.st_mtime_ns
        mode = said.get("mode")
        self.mode = mode if isinstance(mode, int) else 0o644
        self.key = key_of(shown, self.size, self.mtime_ns)

    def check(self) -> None:
        now = os.fstat(self.fd)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed(self.what)
