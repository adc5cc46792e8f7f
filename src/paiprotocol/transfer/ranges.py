"""Ranges of open files: read, write, preallocate and hash, on every operating system."""

from __future__ import annotations

import errno
import os
import sys
from functools import lru_cache

from paiprotocol.transfer import hashing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WRITE_BYTES = 1 << 20
"""Bytes of one ``pwrite``.

The kernel allocates a file's pages in stretches as long as the write, and it serialises writes to one file:
short writes cost a call each and make other threads wait more often. See docs/contributing/transfers.md.
"""

if sys.platform == "win32":
    from threading import Lock

    _position_lock = Lock()

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """Read up to the buffer's length; the number of bytes read."""
        with _position_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            data = os.read(fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data``."""
        view = memoryview(data)
        with _position_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            while len(view):
                view = view[os.write(fd, view) :]

    def reserve(fd: int, offset: int, length: int) -> None:
        """No operation: Windows has no such call."""

else:

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """Read up to the buffer's length; the number of bytes read."""
        return os.preadv(fd, [buffer], offset)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data``."""
        view = memoryview(data)
        at, size = 0, len(view)
        while at < size:
            at += os.pwrite(fd, view[at : at + MAX_WRITE_BYTES], offset + at)

    def reserve(fd: int, offset: int, length: int) -> None:
        """Preallocate a range that is about to be written, where the file system can.

        Writing to allocated blocks is cheaper, and a full disk is reported before anything is sent.
        """
        if length < MAX_WRITE_BYTES or (allocate := _allocator()) is None:
            return
        code = allocate(fd, offset, length)
        if code in _DISK_FULL:
            raise OSError(code, os.strerror(code))

    _DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

    @lru_cache
    def _allocator() -> Callable[[int, int, int], int] | None:
        """The system call itself: ``os.posix_fallocate`` writes zeros where the file system lacks it."""
        try:
            import ctypes
        except ImportError:  # a Python built without ctypes
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
        if fallocate is None:
            return None
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)

        def allocate(fd: int, offset: int, length: int) -> int:
            return ctypes.get_errno() if fallocate(fd, 0, offset, length) else 0

        return allocate


def hash_range(fd: int, offset: int, length: int, algorithm: str) -> bytes:
    """Hash of a range; empty when the file ends before the range does."""
    digest = hashing.hasher(algorithm)()
    buffer = memoryview(bytearray(min(MAX_WRITE_BYTES, length)))
    while length > 0:
        got = read_at(fd, buffer[:length], offset)
        if not got:
            return b""
        digest.update(buffer[:got])
        offset += got
        length -= got
    return digest.digest()
