"""A log as a reader sees it: one run of bytes with logical offsets, perhaps with gaps.

Segments and their names are described in docs/contributing/architecture.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

STREAMS = ("all", "stdout", "stderr")

_TAIL_BLOCK = 65536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that stand at this offset. An offset past the one asked for means that a part was dropped."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class LogReader:
    def __init__(self, folder: Path, stream: str):
        self._folder = folder
        self._stream = stream

    def _segments(self) -> list[tuple[int, Path]]:
        prefix = self._stream + "."
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            start = name[len(prefix) :]
            if name.startswith(prefix) and start.isdigit():
                found.append((int(start), self._folder / name))
        return sorted(found)

    def size(self) -> int:
        """The offset one past the last byte."""
        for start, path in reversed(self._segments()):
            try:
                return start + path.stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def read(self, offset: int, limit: int) -> Chunk:
        """What stands at the offset, or at the next offset that is still kept. Empty at the end."""
        while True:
            for start, path in self._segments():
                try:
                    with path.open("rb") as f:
                        f.seek(max(0, offset - start))
                        data = f.read(limit)
                except FileNotFoundError:
                    break  # dropped while we looked: look again
                if data:
                    return Chunk(max(offset, start), data)
            else:
                return Chunk(offset, b"")

    def tail(self, lines: int) -> int:
        """The offset at which the last so many lines begin."""
        end = self.size()
        if lines <= 0:
            return end
        wanted = lines
        position = end
        # The newline that ends the last line does not begin another.
        last = True
        while position > 0:
            begin = max(0, position - _TAIL_BLOCK)
            chunk = self.read(begin, position - begin)
            if chunk.offset >= position or not chunk.data:
                return position
            data = chunk.data
            if last and data.endswith(b"\n"):
                data = data[:-1]
            last = False
            at = len(data)
            while wanted:
                at = data.rfind(b"\n", 0, at)
                if at < 0:
                    break
                wanted -= 1
            if not wanted:
                return chunk.offset + at + 1
            if chunk.offset > begin:
                return chunk.offset
            position = begin
        return 0
