"""Progress bar on a terminal, for operations that take longer than a second; silent elsewhere."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class TransferCounters(Protocol):
        """Counters of a transfer, as ``storage.transfer`` keeps them."""

        total_files: int
        total_bytes: int
        files: int
        bytes: int


SHOW_AFTER_S = 1.0
REDRAW_INTERVAL_S = 0.1
WIDTH = 24


class Progress:
    """``with Progress("Sending", total) as p: p.advance(n)``: drawn on a terminal, removed at the end.

    ``delay_s`` is the time before the bar appears, so that short operations draw nothing.
    """

    __slots__ = (
        "delay_s",
        "done",
        "is_drawn",
        "is_enabled",
        "label",
        "last_draw",
        "redraw_interval_s",
        "start",
        "total",
    )

    def __init__(
        self,
        label: str = "",
        total: int = 0,
        delay_s: float = SHOW_AFTER_S,
        redraw_interval_s: float = REDRAW_INTERVAL_S,
    ):
        self.label = label
        self.total = total
        self.done = 0
        self.delay_s = delay_s
        self.redraw_interval_s = redraw_interval_s
        self.start = time.monotonic()
        self.last_draw = self.start if self.delay_s else 0.0
        self.is_drawn = False
        try:
            self.is_enabled = sys.stderr.isatty()
        except ValueError:
            self.is_enabled = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def advance(self, count: int) -> None:
        """``count`` more bytes are done."""
        self.done += count
        now = time.monotonic()
        if self._is_due(now):
            self._draw(now, self.done, self.total, self.done, self.total)

    def update(self, counters: TransferCounters) -> None:
        """Draw the state of a transfer; files are counted if there are no bytes to send."""
        now = time.monotonic()
        if not self._is_due(now):
            return
        if counters.total_bytes:
            done, total = counters.bytes, counters.total_bytes
        else:
            done, total = counters.files, counters.total_files or 1
        self._draw(now, done, total, counters.bytes, counters.total_bytes)

    def _is_due(self, now: float) -> bool:
        is_visible = self.is_enabled and now - self.start >= self.delay_s
        return is_visible and now - self.last_draw >= self.redraw_interval_s

    def _draw(self, now: float, done: int, total: int, done_bytes: int, total_bytes: int) -> None:
        from openpaisdk.storage.file_info import format_size

        self.last_draw = now
        elapsed = max(now - self.start, 0.001)
        share = min(1.0, max(0.0, done / total)) if total else 1.0
        filled = int(share * WIDTH)
        left = f"  {_clock((total - done) / (done / elapsed))} left" if done > 0 and elapsed > 0.5 else ""
        label = f"{self.label} " if self.label else ""
        bar = f"{label}[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}"
        size = f"{format_size(max(0, done_bytes))} of {format_size(total_bytes)}"
        self._write(f"\r{bar}  {size}  {format_size(done_bytes / elapsed)}/s{left}\x1b[K")
        self.is_drawn = True

    def clear(self) -> None:
        """Remove the bar from the terminal."""
        if self.is_drawn:
            self._write("\r\x1b[K")
            self.is_drawn = False

    @staticmethod
    def _write(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # the terminal is closed; the operation continues


def _clock(seconds: float) -> str:
    total = int(max(0.0, seconds) + 0.5)
    if total < 3600:
        return f"{total // 60}:{total % 60:02}"
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"
