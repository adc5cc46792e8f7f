"""A picture of a cluster on the whole terminal, kept up to date until Ctrl-C."""

from __future__ import annotations

import sys
import time
from typing import Generic, TypeVar

from openpaisdk.output import palette
from openpaisdk.output.table import shorten
from openpaisdk.output.terminal import Screen
from openpaisdk.output.untrusted_text import printable, visible
from paiprotocol.errors import ConnectionFailed, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import NoReturn

    from openpaisdk.client import ClusterClient

Result = TypeVar("Result")

REQUEST_TIMEOUT_S = 10.0
RESIZE_INTERVAL_S = 0.2
"""How often the size of the window is checked; a signal for it does not exist on every platform."""


class Poller(Generic[Result]):
    """Repeats a query; remembers the last result, and the error while the cluster does not respond."""

    def __init__(self, cluster: ClusterClient, query: Callable[[], Result]):
        """Query once: an error of the first request ends the command."""
        self._cluster = cluster
        self._query = query
        self.result = query()
        self.error = ""
        self.updated_s = time.time()
        # One attempt: the next round is the retry. More would restart an embedded cluster that the user
        # stops.
        cluster.transport.shorten_timeouts(REQUEST_TIMEOUT_S)
        cluster.transport.on_slow_response = None

    def poll(self) -> None:
        try:
            self.result = self._query()
        except (ConnectionFailed, Unavailable) as e:
            self.error = e.message
            self._cluster.transport.rediscover()
        else:
            self.error = ""
            self.updated_s = time.time()

    def head(self, what: str, interval_s: int, columns: int) -> str:
        """First line of a window: what is shown, and when it was updated, or why it is stale."""
        updated = time.strftime("%H:%M:%S", time.localtime(self.updated_s))
        if self.error:
            text = printable(f"As of {updated}; trying again: {self.error}")
            return palette(sys.stdout).paint(shorten(text, columns), "yellow")
        seconds = "second" if interval_s == 1 else f"{interval_s} seconds"
        return shorten(f"{what} on {self._cluster.alias} at {updated}, every {seconds}; Ctrl-C ends", columns)


def show_on_screen(
    poller: Poller[Result],
    picture: Callable[[os.terminal_size], list[str]],
    last: Callable[[os.terminal_size], str],
    interval_s: float,
) -> NoReturn:
    """Show the picture until Ctrl-C; then restore the window, and print ``last`` below its former content."""
    try:
        with Screen(sys.stdout) as screen:
            while True:
                # Before the picture: a window that is resized while it is drawn is drawn again.
                size = screen.size
                screen.draw(picture(size))
                _sleep(interval_s, screen, size, picture)
                poller.poll()
    finally:
        if text := last(screen.size):
            sys.stdout.write(visible(text) + "\n")


def _sleep(
    interval_s: float,
    screen: Screen,
    size: os.terminal_size,
    picture: Callable[[os.terminal_size], list[str]],
) -> None:
    """Wait for the next round; redraw a window whose size has changed."""
    end = time.monotonic() + interval_s
    while (remaining_s := end - time.monotonic()) > 0:
        time.sleep(min(remaining_s, RESIZE_INTERVAL_S))
        if screen.size != size:
            size = screen.size
            screen.draw(picture(size))
