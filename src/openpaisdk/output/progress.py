"""How far something is that takes longer than a second, on a terminal; elsewhere nothing is said."""

from __future__ import annotations

import sys
import time

SHOW_AFTER_S = 1.0
REDRAW_INTERVAL_S = 0.1
WIDTH = 24


class Progress:
    """``with Progress("Sending", total) as p: p.advance(n)``. Drawn where a person looks, then removed."""

    __slots__ = ("began", "done", "drawn", "label", "last", "shows", "total")

    def __init__(self, label: str, total: int):
        self.label = label
        self.total = total
        self.done = 0
        self.began = self.last = time.monotonic()
        self.drawn = False
        try:
            self.shows = sys.stderr.isatty()
        except ValueError:
            self.shows = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def advance(self, count: int) -> None:
        """So much more is done."""
        self.done += count
        now = time.monotonic()
        if self.shows and now - self.began >= SHOW_AFTER_S and now - self.last >= REDRAW_INTERVAL_S:
            self.last = now
            self.draw(now)

    def draw(self, now: float) -> None:
        share = min(1.0, self.done / self.total) if self.total else 1.0
        bar = "#" * int(WIDTH * share)
        speed = self.done / (now - self.began) / (1 << 20)
        line = f"\r{self.label} [{bar:<{WIDTH}}] {share:4.0%}  {speed:.1f} MB/s"
        sys.stderr.write(line + "\x1b[K")
        sys.stderr.flush()
        self.drawn = True

    def clear(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.drawn = False
