"""Passed descriptors: files that clients of the same machine may write, kept from growing beyond their size.

A descriptor cannot be taken back. As long as anyone has such a file open for writing, also after its session
or its upload has ended, its size is looked at; a file that has outgrown what was announced, and admitted, is
emptied again and again. A client can thereby fill the disk only with what it writes within the interval.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

from paicluster.files.transfer.upload import Upload
from paiprotocol.errors import Unavailable

log = logging.getLogger("paicluster.transfer")

MAX_PER_USER = 64
"""Files of a user that are open for writing elsewhere."""
_INTERVAL_S = 0.25
# File systems allocate more than was written, so that a growing file stays in one piece.
_MAX_ALLOCATION_FACTOR = 2
_MAX_ALLOCATION_EXTRA = 16 << 20
# Where the file system cannot tell whether a file is open elsewhere. Sessions end earlier.
_MAX_AGE_S = 900.0


@dataclass(slots=True)
class _Watched:
    upload: Upload
    username: str
    # For reading: it is no writer itself.
    fd: int
    max_bytes: int
    since: float
    was_reported: bool = False


class PassedDescriptors:
    """Watches the files of one storage, in a thread that exists while there are any. For any thread."""

    def __init__(self, *, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._of_user: Counter[str] = Counter()
        self._is_watching = False

    def add(self, upload: Upload, fd: int, size: int) -> None:
        """Watch a file before its descriptor is passed."""
        username = upload.user.name
        with self._lock:
            if self._of_user[username] >= MAX_PER_USER:
                raise Unavailable(
                    f"User {username} has {MAX_PER_USER} files of local uploads open, which is the limit.",
                    hint="Close some of them first.",
                )
            read_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            self._of_user[username] += 1
            self._watched.append(_Watched(upload, username, read_fd, size, time.monotonic()))
            if not self._is_watching:
                self._is_watching = True
                threading.Thread(target=self._watch, name="passed-descriptors", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(self._interval_s)
            for one in tuple(self._watched):
                try:
                    is_over = self._check(one)
                except OSError:
                    log.exception("The file of a local upload cannot be watched.")
                    is_over = time.monotonic() > one.since + _MAX_AGE_S
                if is_over:
                    self._forget(one)
            with self._lock:
                if not self._watched:
                    self._is_watching = False
                    return

    def _check(self, one: _Watched) -> bool:
        """Empty a file that is too large. True: it is open for writing nowhere."""
        status = os.fstat(one.fd)
        # Of a deleted file nothing counts for any quota.
        max_bytes = one.max_bytes if status.st_nlink else 0
        allocated = status.st_blocks * 512
        is_too_large = status.st_size > max_bytes
        if is_too_large or allocated > _MAX_ALLOCATION_FACTOR * max_bytes + _MAX_ALLOCATION_EXTRA:
            if status.st_nlink:
                one.upload.reject()
            if not one.was_reported:
                one.was_reported = True
                log.warning(
                    "User %s wrote more than the announced %d bytes of a local upload: they are deleted.",
                    one.username,
                    one.max_bytes,
                )
            fd = os.open(f"/proc/self/fd/{one.fd}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(fd, 0)
            finally:
                os.close(fd)
        return _has_no_writer(one)

    def _forget(self, one: _Watched) -> None:
        os.close(one.fd)
        with self._lock:
            self._watched.remove(one)
            self._of_user[one.username] -= 1
            self._of_user += Counter()  # removes users without files


def _has_no_writer(one: _Watched) -> bool:
    """The kernel grants a read lease only on a file that no process has open for writing."""
    try:
        fcntl.fcntl(one.fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(one.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(one.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return False
    except OSError:  # a file system without leases
        return time.monotonic() > one.since + _MAX_AGE_S
    return True
