"""Lines of a log by their level, as the runtime writes them: time, level, name and text."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HEAD = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")


class LevelFilter:
    """Passes lines of this level or above on, with the lines that belong to them, such as a traceback.

    What a program printed past its logging has no level and belongs to nothing: it is left out.
    """

    def __init__(self, out: BinaryIO, level: str):
        self._out = out
        self._lowest = LEVELS.index(level)
        self._rest = b""
        self._passing = False

    def write(self, data: bytes) -> int:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            head = _HEAD.match(line)
            if head:
                self._passing = LEVELS.index(head[1].decode()) >= self._lowest
            elif not line.startswith((b" ", b"\t", b"Traceback ")) and not _ends_traceback(line):
                self._passing = False
            if self._passing:
                self._out.write(line + b"\n")
        return len(data)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()


def _ends_traceback(line: bytes) -> bool:
    """``ValueError: text``: the last line of a traceback begins with the exception's name."""
    name = line.partition(b":")[0]
    return name[:1].isupper() and name.replace(b".", b"").replace(b"_", b"").isalnum()
