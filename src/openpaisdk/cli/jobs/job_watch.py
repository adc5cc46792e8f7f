"""``pai list-jobs --watch``: the list of jobs, kept up to date."""

from __future__ import annotations

import sys
import time

from openpaisdk.cli.jobs.live_screen import Poller, show_on_screen
from openpaisdk.output import print_notice
from openpaisdk.output.terminal import is_terminal
from openpaisdk.output.untrusted_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import NoReturn

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobSummary

    # Jobs, and whether there are more.
    Found = tuple[list[JobSummary], bool]
    Query = Callable[[], Found]
    Render = Callable[[list[JobSummary], int | None], str]


def watch_jobs(cluster: ClusterClient, query: Query, render: Render, interval_s: int) -> int:
    """Show the jobs until Ctrl-C; a cluster that restarts is waited for."""
    poller = Poller(cluster, query)
    if is_terminal(sys.stdout):
        show_on_screen(
            poller,
            lambda size: _picture(poller, render, interval_s, size),
            lambda size: render(jobs, size.columns) if (jobs := poller.result[0][: size.lines]) else "",
            interval_s,
        )
    return _print_changes(poller, interval_s)


def _picture(poller: Poller[Found], render: Render, interval_s: int, size: os.terminal_size) -> list[str]:
    """The lines of the window: a head, the table, and how many jobs have no place in it."""
    columns, height = size
    head = poller.head("Jobs", interval_s, columns)
    jobs, has_more = poller.result
    if not jobs:
        return [head, "", "No jobs."]
    space = max(1, height - 4)  # head, empty line, headers, and the line of the cursor
    if len(jobs) > space:
        shown = jobs[: max(1, space - 1)]
        more = "at least " if has_more else ""
        omitted = [f"and {more}{len(jobs) - len(shown)} more"]
    else:
        shown, omitted = jobs, []
    return [head, "", *render(shown, columns).splitlines(), *omitted]


def _print_changes(poller: Poller[Found], interval_s: int) -> NoReturn:
    """Without a terminal: a line for each job, and another one whenever its state changes."""
    print_notice(
        f"The output is not a terminal: printing a line for each change of a state, checked every "
        f"{interval_s} s; Ctrl-C ends."
    )
    states: dict[str, str] = {}
    was_lost = False
    while True:
        for job in reversed(poller.result[0]):  # oldest first: new lines come last
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
