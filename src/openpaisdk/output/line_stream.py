"""Base of output streams that handle a log line by line, in front of another stream."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO, TypeAlias

    from openpaisdk.output.untrusted_text import TerminalLog

    Output: TypeAlias = "BinaryIO | TerminalLog | LineStream"

MAX_LINE_BYTES = 1 << 16
"""A longer line is handled in parts: a program that never ends its line must not fill the memory."""


class LineStream:
    """Passes complete lines to its subclass; the beginning of a line is held back until its end."""

    __slots__ = ("_begun", "_out", "_rest")

    def __init__(self, out: Output):
        self._out = out
        self._rest = b""
        # Whether a part of the current line was written without its end.
        self._begun = False

    def write(self, data: bytes) -> int:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._write_lines(lines)
        if len(self._rest) > MAX_LINE_BYTES:
            part, self._rest = self._rest, b""
            self._write_part(part)
        return len(data)

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        """Handle complete lines, without their ends; the first may continue a part."""
        raise NotImplementedError

    def _write_part(self, part: bytes) -> None:
        """Handle a part of a line that is too long to be held back."""
        raise NotImplementedError

    def end_line(self) -> None:
        """Handle the beginning of a line that will not be continued."""
        if self._rest or self._begun:
            self.write(b"\n")

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()
