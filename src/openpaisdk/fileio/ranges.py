"""Ranges of open files: read, written and hashed, on every system alike."""

from __future__ import annotations

import errno
import os
import sys
from functools import lru_cache

from openpaisdk.fileio import hashing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 1 << 20
"""What is given to the kernel at once.

It takes memory for a file's pages in one stretch as long as the write, and one writes to a file at a time:
short ones cost time for each, and let others wait more often. See docs/contributing/transfers.md.
"""

if sys.platform == "win32":
    from threading import Lock

    _positions = Lock()

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """As much as there is and has room; how much that was."""
        with _positions:
            os.lseek(fd, offset, os.SEEK_SET)
            data = os.read(fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
        """All of it."""
        view = memoryview(data)
        with _positions:
            os.lseek(fd, offset, os.SEEK_SET)
            while len(view):
                view = view[os.write(fd, view) :]

    def reserve(fd: int, offset: int, length: int) -> None:
        """Nothing: there is no such call."""

else:

    def read_at(fd: int, buffer: memoryview, offset: int) -> int:
        """As much as there is and has room; how much that was."""
        return os.preadv(fd, [buffer], offset)

    def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
        """All of it."""
        view = memoryview(data)
        at, size = 0, len(view)
        while at < size:
            at += os.pwrite(fd, view[at : at + PIECE], offset + at)

    def reserve(fd: int, offset: int, length: int) -> None:
        """Have the disk set a range aside that is going to be written, where it can.

        Pages whose place is known cost less to write; and a full disk says so before anything is sent.
        """
        if length < PIECE or (allocate := _allocator()) is None:
            return
        code = allocate(fd, offset, length)
        if code in _NO_ROOM:
            raise OSError(code, os.strerror(code))

    _NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

    @lru_cache
    def _allocator() -> Callable[[int, int, int], int] | None:
        """The kernel's own call: ``os.posix_fallocate`` writes zeros where the disk has none."""
        try:
            import ctypes
        except ImportError:  # a Python that was built without
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
        if fallocate is None:
            return None
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)

        def allocate(fd: int, offset: int, length: int) -> int:
            return ctypes.get_errno() if fallocate(fd, 0, offset, length) else 0

        return allocate


def digest_of(fd: int, offset: int, length: int, algorithm: str) -> bytes:
    """The hash of a range; empty when the file ends before it."""
    made = hashing.hasher(algorithm)()
    buffer = memoryview(bytearray(min(PIECE, length)))
    while length > 0:
        got = read_at(fd, buffer[:length], offset)
        if not got:
            return b""
        made.update(buffer[:got])
        offset += got
        length -= got
    return made.digest()
