"""Text of servers and other users on the way to the screen: it must not control the terminal.

Names, tags, messages and notices are text: of their control characters only line ends and tabs are kept, all
others are shown as escapes (``\\x1b``). The log of a job may be coloured and redraw its line, so on a
terminal it keeps the sequences for that and no others; piped or redirected it stays what the job wrote.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, TextIO

# Compiled at their first use: most commands use none of them.
_OWN_COLOURS = "(\x1b\\[(?:0|1|2|3[1-6])m)"
"""The sequences that ``colour.Palette`` writes."""
_LOG_CONTROL = (
    rb"(?P<kept>\x1b\[[0-9;:]{0,32}m|\x1b\[[0-9]{0,3}[ABCDGK])"
    rb"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]"
)
"""``kept``: colours, moves by columns and lines, and clearing the line, as progress bars use them."""
_INCOMPLETE = rb"(?:\x1b(?:\[[0-9;:]{0,32})?|\xc2)\Z"


def is_printable(text: str) -> bool:
    """Whether all lines of the text are printable."""
    return text.isprintable() or text.replace("\n", "").isprintable()


def printable(text: str) -> str:
    """The text in one line, with escapes for everything that is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def visible(text: str) -> str:
    """The text with line ends, tabs and our own colours, and escapes for all other control characters."""
    if is_printable(text):
        return text
    parts = re.split(_OWN_COLOURS, text) if "\x1b" in text else [text]  # every second one is a colour
    parts[::2] = [
        "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in part) for part in parts[::2]
    ]
    return "".join(parts)


class TerminalLog:
    """Output stream for the log of a job on a terminal."""

    __slots__ = ("_control", "_incomplete", "_out", "_rest")

    def __init__(self, out: BinaryIO):
        self._control, self._incomplete = re.compile(_LOG_CONTROL), re.compile(_INCOMPLETE)
        self._out = out
        self._rest = b""
        """The beginning of a sequence whose end has not arrived."""

    def write(self, data: bytes) -> int:
        whole = self._rest + data
        cut = self._incomplete.search(whole)
        self._rest = whole[cut.start() :] if cut else b""
        self._out.write(self._control.sub(_shown, whole[: len(whole) - len(self._rest)]))
        return len(data)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return True


def log_output(stream: TextIO) -> BinaryIO | TerminalLog:
    """Where to write the log of a job: a terminal gets it filtered, a pipe or file byte for byte."""
    return TerminalLog(stream.buffer) if stream.isatty() else stream.buffer


def _shown(match: re.Match[bytes]) -> bytes:
    return match["kept"] or b"\\x%02x" % match[0][-1]
