"""``pai list-jobs --watch``: the list of jobs, kept up to date."""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.errors import ConnectionFailed, Unavailable
from openpaisdk.output import palette, print_notice
from openpaisdk.output.table import shorten
from openpaisdk.output.terminal import Screen, is_terminal
from openpaisdk.output.untrusted_text import printable, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobSummary

    Query = Callable[[], tuple[list[JobSummary], bool]]
    Render = Callable[[list[JobSummary], int | None], str]

REQUEST_TIMEOUT_S = 10.0
RESIZE_INTERVAL_S = 0.2
"""How often the size of the window is checked; a signal for it does not exist on every platform."""


def watch_jobs(cluster: ClusterClient, query: Query, render: Render, interval_s: int) -> int:
    """Show the jobs until Ctrl-C; a cluster that restarts is waited for."""
    first = query()  # an error of the first request ends the command, as without --watch
    # One attempt: the next round is the retry. More would restart an embedded cluster that the user stops.
    cluster.transport.shorten_timeouts(REQUEST_TIMEOUT_S)
    cluster.transport.on_slow_response = None
    if is_terminal(sys.stdout):
        return _show_on_screen(cluster, query, render, interval_s, first)
    return _print_changes(cluster, query, interval_s, first)


class _Poller:
    """Repeats the query; remembers the last result, and the error while the cluster does not respond."""

    def __init__(self, cluster: ClusterClient, query: Query, first: tuple[list[JobSummary], bool]):
        self._cluster = cluster
        self._query = query
        self.jobs, self.has_more = first
        self.error = ""
        self.updated_s = time.time()

    def poll(self) -> None:
        try:
            self.jobs, self.has_more = self._query()
        except (ConnectionFailed, Unavailable) as e:
            self.error = e.message
            self._cluster.transport.rediscover()
        else:
            self.error = ""
            self.updated_s = time.time()


def _show_on_screen(
    cluster: ClusterClient,
    query: Query,
    render: Render,
    interval_s: int,
    first: tuple[list[JobSummary], bool],
) -> NoReturn:
    poller = _Poller(cluster, query, first)
    try:
        with Screen(sys.stdout) as screen:
            while True:
                # Before the picture: a window that is resized while it is drawn is drawn again.
                size = screen.size
                screen.draw(_picture(cluster, poller, render, interval_s, screen))
                _sleep(
                    interval_s, screen, size, lambda: _picture(cluster, poller, render, interval_s, screen)
                )
                poller.poll()
    finally:
        # The window shows what was there before: leave the last list below it.
        if poller.jobs:
            last = render(poller.jobs[: screen.size.lines], screen.size.columns)
            sys.stdout.write(visible(last) + "\n")


def _sleep(
    interval_s: float, screen: Screen, size: os.terminal_size, picture: Callable[[], list[str]]
) -> None:
    """Wait for the next round; a window whose size is no longer the one that was drawn is redrawn."""
    end = time.monotonic() + interval_s
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, RESIZE_INTERVAL_S))
        if screen.size != size:
            size = screen.size
            screen.draw(picture())


def _picture(
    cluster: ClusterClient, poller: _Poller, render: Render, interval_s: int, screen: Screen
) -> list[str]:
    """The lines of the window: a head, the table, and how many jobs have no place in it."""
    columns, height = screen.size
    updated = time.strftime("%H:%M:%S", time.localtime(poller.updated_s))
    if poller.error:
        text = printable(f"As of {updated}; trying again: {poller.error}")
        head = palette(sys.stdout).paint(shorten(text, columns), "yellow")
    else:
        seconds = "second" if interval_s == 1 else f"{interval_s} seconds"
        head = shorten(f"Jobs on {cluster.alias} at {updated}, every {seconds}; Ctrl-C ends", columns)
    jobs = poller.jobs
    if not jobs:
        return [head, "", "No jobs."]
    space = max(1, height - 4)  # head, empty line, headers, and the line of the cursor
    if len(jobs) > space:
        shown = jobs[: max(1, space - 1)]
        more = "at least " if poller.has_more else ""
        left = [f"and {more}{len(jobs) - len(shown)} more"]
    else:
        shown, left = jobs, []
    return [head, "", *render(shown, columns).splitlines(), *left]


def _print_changes(
    cluster: ClusterClient, query: Query, interval_s: int, first: tuple[list[JobSummary], bool]
) -> NoReturn:
    """Without a terminal: a line for each job, and another one whenever its state changes."""
    print_notice(
        f"The output is not a terminal: printing a line for each change of a state, checked every "
        f"{interval_s} s; Ctrl-C ends."
    )
    poller = _Poller(cluster, query, first)
    states: dict[str, str] = {}
    was_lost = False
    while True:
        for job in reversed(poller.jobs):  # oldest first: new lines come last
            if states.get(job.whole_name) != job.state:
                states[job.whole_name] = job.state
                line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {job.name}  {job.state}"
                sys.stdout.write(printable(line) + "\n")
        sys.stdout.flush()
        if bool(poller.error) != was_lost:
            was_lost = bool(poller.error)
            print_notice(f"{poller.error} Trying again." if was_lost else "Reconnected to the cluster.")
        time.sleep(interval_s)
        _require_reader()
        poller.poll()


def _require_reader() -> None:
    """Notice that the reader of a pipe has exited, although there was nothing to write."""
    if sys.platform != "win32":
        import select

        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError
