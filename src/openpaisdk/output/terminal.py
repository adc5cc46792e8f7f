"""Size of the terminal, and a display on it that is redrawn in place."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

DEFAULT_SIZE = os.terminal_size((80, 24))
# Alternate screen, no cursor, no wrapped lines; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def terminal_columns(stream: TextIO) -> int | None:
    """Width of the terminal behind a stream; None without a terminal: lines may be of any length.

    As in other programs, COLUMNS takes precedence.
    """
    if not is_terminal(stream):
        return None
    setting = os.environ.get("COLUMNS", "")
    return int(setting) if setting.isdecimal() and int(setting) else terminal_size(stream).columns


def terminal_size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return DEFAULT_SIZE
    return size if size.columns and size.lines else DEFAULT_SIZE  # some terminals do not know their size


class Screen:
    """The whole window of a terminal, redrawn in place; the former content returns at the end.

    A picture is one write that overwrites the former one, so nothing flickers.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __enter__(self) -> Screen:
        if sys.platform != "win32":
            import signal

            # A killed or suspended program must give the window back.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            signal.signal(signal.SIGTSTP, lambda *_: self._suspend())
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_LEAVE)

    @property
    def size(self) -> os.terminal_size:
        return terminal_size(self._stream)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines from the top of the window; lines that do not fit are left out."""
        shown = lines[: self.size.lines - 1]
        # Cleared first: after a line that fills the window the cursor is still on its last character.
        self._write(_HOME + "\r\n".join(_CLEAR_LINE + line for line in shown) + "\r\n" + _CLEAR_BELOW)

    def _suspend(self) -> None:
        if sys.platform != "win32":
            import signal

            self._write(_LEAVE)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._write(_ENTER)  # continues here after fg

    def _write(self, text: str) -> None:
        # Past the buffer of the stream, which raises an error when a signal handler writes during a write.
        remaining = text.encode(self._stream.encoding or "utf-8", "replace")
        while remaining:
            remaining = remaining[os.write(self._stream.fileno(), remaining) :]
