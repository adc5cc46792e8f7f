"""Filter of log lines by level. The runtime writes lines as time, level, name and text."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from openpaisdk.output.line_prefix import LinePrefixer
    from openpaisdk.output.untrusted_text import TerminalLog

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HEAD = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")


class LevelFilter:
    """Output stream that passes lines of at least this level, with their continuation lines (tracebacks).

    Lines that a program printed without logging have no level and are dropped.
    """

    def __init__(self, out: BinaryIO | LinePrefixer | TerminalLog, level: str):
        self._out = out
        self.has_passed = False
        self._min_level = LEVELS.index(level)
        self._rest = b""
        self._is_passing = False

    def write(self, data: bytes) -> int:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            head = _HEAD.match(line)
            if head:
                self._is_passing = LEVELS.index(head[1].decode()) >= self._min_level
            elif not line.startswith((b" ", b"\t", b"Traceback ")) and not _ends_traceback(line):
                self._is_passing = False
            if self._is_passing:
                self.has_passed = True
                self._out.write(line + b"\n")
        return len(data)

    def end_line(self) -> None:
        """Handle the beginning of a line that will not be continued."""
        if self._rest:
            self.write(b"\n")

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()


def _ends_traceback(line: bytes) -> bool:
    """``ValueError: text``: the last line of a traceback begins with the exception's name."""
    name = line.partition(b":")[0]
    return name[:1].isupper() and name.replace(b".", b"").replace(b"_", b"").isalnum()
