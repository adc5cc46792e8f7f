"""Appending to files in pieces of the right size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from openpaisdk.fileio.ranges import PIECE

# As many as the kernel takes at once.
_MOST = 1024


def append(fd: int, data: bytes | memoryview) -> None:
    """All of it, where the file stands."""
    done = os.write(fd, data) if len(data) <= PIECE else 0
    if done < len(data):
        append_all(fd, (memoryview(data)[done:],))


def append_all(fd: int, parts: Iterable[bytes | bytearray | memoryview]) -> None:
    """All of them, where the file stands."""
    for group in _grouped(parts):
        wrote = os.writev(fd, group)
        if wrote < sum(map(len, group)):  # the disk is nearly full, or a signal came
            left = memoryview(b"".join(group))[wrote:]
            while left:
                left = left[os.write(fd, left) :]


def _grouped(parts: Iterable[bytes | bytearray | memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes in groups of one piece each: large parts are cut, small ones gathered."""
    group: list[memoryview] = []
    room = PIECE
    for part in parts:
        view = memoryview(part)
        while view:
            group.append(view[:room])
            view, room = view[room:], room - len(group[-1])
            if not room or len(group) == _MOST:
                yield group
                group, room = [], PIECE
    if group:
        yield group
