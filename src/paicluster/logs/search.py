"""Search in a log: the lines that contain a text, forward or backward from an offset, block by block.

A text, not a regular expression: an expression can take any time on a line, and nothing can interrupt it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paicluster.logs.reader import Chunk, LogReader

MAX_TEXT_BYTES = 1024
CONTEXT_BYTES = 2048
"""What a hit has of its line, before it and after it."""

_BLOCK_BYTES = 64 << 10
"""The allocator returns larger ones to the system, and the faults of new pages cost as much as the search."""
_BLOCKS_PER_STEP = 128
"""Blocks between two looks at whether the search is still wanted: some milliseconds."""
_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True)
class Hit:
    """A line with the text. ``offset`` is that of the text; ``line`` begins at ``line_offset``.

    Of a long line only what surrounds the text is here.
    """

    offset: int
    line_offset: int
    line: bytes


class LogSearch:
    """One search. Each line is found once, however often it has the text: forward by its first place,
    backward by its last. The case of ASCII letters is ignored unless ``matches_case``."""

    def __init__(
        self,
        log: LogReader,
        text: bytes,
        start: int,
        *,
        backward: bool = False,
        matches_case: bool = False,
        block_bytes: int = _BLOCK_BYTES,
    ):
        """Search from ``start`` to the present end, or backward for text that ends at ``start`` or before."""
        self._log = log
        self._block_bytes = block_bytes
        self._text = text if matches_case else text.lower()
        self._matches_case = matches_case
        self._caseless = max(re.split(b"[a-z]+", self._text), key=len)
        """The longest part of the text that is the same in upper and lower case."""
        self._backward = backward
        end = log.size()
        self.position = min(start, end)
        """How far the search has come."""
        self._end = end
        self._carried = b""
        """What was searched already, but may contain a part of the text: after or before the next block."""
        self.is_in_line = False
        """Whether the line at the position was reported."""
        self.is_complete = False

    def step(self, limit: int) -> list[Hit]:
        """The next hits, at most so many. None yet is no sign of the end: see ``is_complete``.

        After the last hit the search goes on to the end of its line (``is_in_line``), so that a new search
        from the position does not find the line again.
        """
        hits: list[Hit] = []
        for _ in range(_BLOCKS_PER_STEP):
            if self.is_complete or (len(hits) >= limit and not self.is_in_line):
                break
            if self._backward:
                self._search_before(hits, limit)
            else:
                self._search_after(hits, limit)
        return hits

    # Both directions search a block together with what was carried over from the one before. A block is left
    # early when there are enough hits; the position is then at the end, or the beginning, of the last line.

    def _search_after(self, hits: list[Hit], limit: int) -> None:
        chunk = self._log.read(self.position, min(self._block_bytes, self._end - self.position) or 1)
        if not chunk.data or chunk.offset >= self._end:
            self.is_complete = True
            return
        if chunk.offset > self.position:  # a part of the log was dropped
            self._carried, self.is_in_line = b"", False
        data = self._carried + chunk.data[: self._end - chunk.offset]
        base = chunk.offset - len(self._carried)
        searched = self._searched(data)
        at = 0
        while True:
            if self.is_in_line:
                newline = data.find(_NEWLINE, at)
                if newline < 0:
                    at = len(data)
                    break
                at, self.is_in_line = newline + 1, False
            if len(hits) >= limit:
                self._carried, self.position = b"", base + at
                return
            found = searched.find(self._text, at)
            if found < 0:
                at = max(at, len(data) - len(self._text) + 1)
                break
            hits.append(self._hit(data, base, found))
            at, self.is_in_line = found + len(self._text), True
        self._carried, self.position = data[at:], base + len(data)

    def _search_before(self, hits: list[Hit], limit: int) -> None:
        if self.position <= 0:
            self.is_complete = True
            return
        begin = max(0, self.position - self._block_bytes)
        chunks = self._log.between(begin, self.position)
        if not chunks:  # dropped, as everything before it
            self.is_complete = True
            return
        chunk = _contiguous(chunks)[-1]
        if chunk.end < self.position:
            self._carried, self.is_in_line = b"", False
        data = chunk.data + self._carried
        searched = self._searched(data)
        # `find` takes linear time for any text and data, `rfind` does not. Few blocks have the text at all.
        backwards = searched[::-1] if self._text in searched else b""
        end = len(data)
        while True:
            if self.is_in_line:
                newline = data.rfind(_NEWLINE, 0, end)
                if newline < 0:
                    end = 0
                    break
                end, self.is_in_line = newline, False
            if len(hits) >= limit:
                self._carried, self.position = b"", chunk.offset + end
                return
            at = backwards.find(self._text[::-1], len(data) - end)
            if at < 0:
                end = min(end, len(self._text) - 1)
                break
            found = len(data) - at - len(self._text)
            hits.append(self._hit(data, chunk.offset, found))
            end, self.is_in_line = found, True
        self._carried, self.position = data[:end], chunk.offset

    def _searched(self, data: bytes) -> bytes:
        """The data in the case of the text; empty if the text cannot be in it."""
        if self._matches_case:
            return data
        return data.lower() if self._caseless in data else b""

    def _hit(self, data: bytes, base: int, at: int) -> Hit:
        """The hit at this place of the data, whose first byte has the offset ``base``."""
        first, last = max(0, at - CONTEXT_BYTES), at + len(self._text) + CONTEXT_BYTES
        begin = data.rfind(_NEWLINE, first, at) + 1
        end = data.find(_NEWLINE, at, last)
        if (not begin and not first and base) or (end < 0 and last > len(data)):
            # The line goes on in another block.
            return self._read_hit(base + at)
        begin = begin or first
        return Hit(base + at, base + begin, data[begin : end if end >= 0 else last])

    def _read_hit(self, offset: int) -> Hit:
        begin = max(0, offset - CONTEXT_BYTES)
        end = offset + len(self._text) + CONTEXT_BYTES
        chunks = [*self._log.between(begin, offset), *self._log.between(offset, end)]
        around = next((c for c in _contiguous(chunks) if c.offset <= offset < c.end), Chunk(offset, b""))
        at = offset - around.offset
        first = around.data.rfind(_NEWLINE, 0, at) + 1
        last = around.data.find(_NEWLINE, at)
        return Hit(offset, around.offset + first, around.data[first : last if last >= 0 else None])


def _contiguous(chunks: list[Chunk]) -> list[Chunk]:
    """Chunks without a gap between them as one."""
    joined: list[Chunk] = []
    for chunk in chunks:
        if joined and joined[-1].end == chunk.offset:
            joined[-1] = Chunk(joined[-1].offset, joined[-1].data + chunk.data)
        else:
            joined.append(chunk)
    return joined
