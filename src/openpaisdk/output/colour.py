"""Terminal colours: only on a terminal, and not if NO_COLOR is set."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
STATES = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "STOPPED": "yellow",
    "STOPPING": "yellow",
    "RUNNING": "cyan",
    "WAITING": "blue",
    "UNKNOWN": "dim",
}


class Palette:
    """Colours text for one stream, or leaves it unchanged."""

    __slots__ = ("is_enabled",)

    def __init__(self, is_enabled: bool):
        self.is_enabled = is_enabled

    def paint(self, text: str, style: str) -> str:
        code = STYLES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_enabled and code else text

    def state(self, state: str) -> str:
        return self.paint(state, STATES.get(state, ""))


def palette(stream: TextIO) -> Palette:
    """The palette of a stream (https://no-color.org: any non-empty NO_COLOR disables colours)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return Palette(False)
    try:
        return Palette(stream.isatty())
    except ValueError:  # closed
        return Palette(False)
