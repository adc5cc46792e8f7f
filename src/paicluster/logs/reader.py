"""Log reader: segments presented as one byte sequence with logical offsets, possibly with gaps.

Segments and their names are described in docs/contributing/architecture.md.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Stream = Literal["all", "stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("all", "stdout", "stderr")

_TAIL_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes at an offset. An offset past the requested one means that a part was dropped."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class LogReader:
    """Reads one stream of an attempt folder."""

    def __init__(self, folder: Path, stream: Stream):
        self.folder = folder
        self.stream: Stream = stream
        self._known: list[tuple[int, Path]] = []
        """Segments as the last read listed them."""

    def _segments(self) -> list[tuple[int, Path]]:
        prefix = self.stream + "."
        segments = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    start = entry.name[len(prefix) :]
                    ours = entry.name.startswith(prefix) and start.isascii() and start.isdecimal()
                    # No links or pipes: the folder may belong to another account, which must not make the
                    # server read other files, nor block it.
                    if ours and entry.is_file(follow_symlinks=False):
                        segments.append((int(start), self.folder / entry.name))
        except FileNotFoundError:
            return []
        return sorted(segments)

    def size(self) -> int:
        """The offset one past the last byte."""
        for start, path in reversed(self._segments()):
            try:
                return start + path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def read(self, offset: int, limit: int) -> Chunk:
        """The bytes at the offset, or at the next offset still kept. Empty at the end."""
        segments, is_current = self._known, False
        while True:
            # Earlier segments end before it.
            first = bisect_right(segments, offset, key=lambda segment: segment[0]) - 1
            for start, path in segments[max(0, first) :]:
                try:
                    data = _read_at(path, max(0, offset - start), limit)
                except FileNotFoundError:
                    break  # dropped meanwhile: list the segments again
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    break  # replaced by a link meanwhile
                if data:
                    return Chunk(max(offset, start), data)
            else:
                if is_current:
                    return Chunk(offset, b"")
            # A listing takes longer than a read: none as long as the offset is in a segment of the last one.
            segments, is_current = self._segments(), True
            self._known = segments

    def last(self, size: int) -> bytes:
        """The last ``size`` bytes that are kept."""
        end = self.size()
        return b"".join(chunk.data for chunk in self.between(max(0, end - size), end))

    def between(self, begin: int, end: int) -> list[Chunk]:
        """Everything kept of this range, in order."""
        chunks = []
        while begin < end:
            chunk = self.read(begin, end - begin)
            if chunk.offset >= end or not chunk.data:
                break
            # A chunk that begins past the requested offset may reach past the end.
            chunks.append(Chunk(chunk.offset, chunk.data[: end - chunk.offset]))
            begin = chunks[-1].end
        return chunks

    def tail(self, lines: int, max_bytes: int | None = None, *, block_bytes: int = _TAIL_BLOCK_BYTES) -> int:
        """The offset at which the last ``lines`` lines begin; with ``max_bytes`` no further from the end.

        Only of a line that is longer than that, a part is left out.
        """
        end = self.size()
        if lines <= 0:
            return end
        earliest = 0 if max_bytes is None else max(0, end - max_bytes)
        first = end
        position = end
        # The newline that ends the last line does not start another one.
        ignored = end - 1
        line_start = None
        while position > earliest:
            begin = max(earliest, position - block_bytes)
            for chunk in reversed(self.between(begin, position)):
                at = len(chunk.data)
                while (at := chunk.data.rfind(b"\n", 0, at)) >= 0:
                    if chunk.offset + at != ignored:
                        lines -= 1
                        line_start = chunk.offset + at + 1
                        if not lines:
                            return line_start
                first = chunk.offset
            position = begin
        # Where the bytes are the limit, the first of them are rarely the first of a line.
        return line_start if earliest and line_start is not None else first


def _read_at(path: Path, position: int, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        # A client may ask for an offset that the file system cannot seek to.
        return os.pread(fd, limit, position) if position < os.fstat(fd).st_size else b""
    finally:
        os.close(fd)
