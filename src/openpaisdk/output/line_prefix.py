"""Output stream that writes whole lines with a prefix, so that several logs can share one terminal."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from openpaisdk.output.untrusted_text import TerminalLog

MAX_LINE_BYTES = 1 << 16
"""A longer line is written in pieces: a program that never ends its line must not fill the memory."""


class LinePrefixer:
    """Writes each complete line after its prefix; the beginning of a line is held back until its end.

    Of a line that was overwritten with carriage returns, as progress bars do, the last version is written:
    the others would hide the prefix.
    """

    __slots__ = ("_out", "_prefix", "_rest")

    def __init__(self, out: BinaryIO | TerminalLog, prefix: str):
        self._out = out
        self._prefix = prefix.encode("utf-8", "backslashreplace")
        self._rest = b""

    def write(self, data: bytes) -> int:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._out.write(b"".join(map(self._shown, lines)))
        return len(data)

    def _shown(self, line: bytes) -> bytes:
        return self._prefix + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"

    def end_line(self) -> None:
        """Write the beginning of a line that will not be continued."""
        if self._rest:
            self.write(b"\n")

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()
