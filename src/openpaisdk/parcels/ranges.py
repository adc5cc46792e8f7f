"""Ranges of open files: read, written and hashed, on every system alike."""

from __future__ import annotations

import os
import sys

from openpaisdk.parcels import hashing

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


def digest_of(fd: int, offset: int, length: int, algorithm: str) -> bytes:
    """The hash of a range; empty when the file ends before it."""
    made = hashing.maker(algorithm)()
    buffer = memoryview(bytearray(min(PIECE, length)))
    while length > 0:
        got = read_at(fd, buffer[:length], offset)
        if not got:
            return b""
        made.update(buffer[:got])
        offset += got
        length -= got
    return made.digest()
