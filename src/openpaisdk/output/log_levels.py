"""Filter of log lines by level. The runtime writes lines as time, level, name and text."""

from __future__ import annotations

import re

from openpaisdk.output.line_stream import LineStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.output.line_stream import Output

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HEAD = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")


class LevelFilter(LineStream):
    """Output stream that passes lines of at least this level, with their continuation lines (tracebacks).

    Lines that a program printed without logging have no level and are dropped.
    """

    __slots__ = ("_is_passing", "_min_level", "has_passed")

    def __init__(self, out: Output, level: str):
        super().__init__(out)
        self.has_passed = False
        self._min_level = LEVELS.index(level)
        self._is_passing = False

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._filter(line, b"\n")
            self._begun = False

    def _write_part(self, part: bytes) -> None:
        self._filter(part, b"")
        self._begun = True

    def _filter(self, text: bytes, end: bytes) -> None:
        if not self._begun:  # else the line's first part has decided
            self._decide(text)
        if self._is_passing:
            self.has_passed = True
            self._out.write(text + end)

    def _decide(self, line: bytes) -> None:
        head = _HEAD.match(line)
        if head:
            self._is_passing = LEVELS.index(head[1].decode()) >= self._min_level
        elif not line.startswith((b" ", b"\t", b"Traceback ")) and not _ends_traceback(line):
            self._is_passing = False


def _ends_traceback(line: bytes) -> bool:
    """``ValueError: text``: the last line of a traceback begins with the exception's name."""
    name = line.partition(b":")[0]
    return name[:1].isupper() and name.replace(b".", b"").replace(b"_", b"").isalnum()
