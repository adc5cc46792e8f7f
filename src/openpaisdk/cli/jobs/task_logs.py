"""Logs of several tasks of a job: selection with ``--task``, and lines with the task's name before them.

A task is a pair of role and index; it is written ``worker[1]``.
"""

from __future__ import annotations

import sys

from openpaisdk.cli.jobs.follow_output import (
    FollowPrinter,
    MissingTimesNotice,
    begin_timed_piece,
    report_interrupt,
)
from openpaisdk.client.follow import follow, follow_tasks
from openpaisdk.client.follow_stream import FollowRequest, attempt_of
from openpaisdk.client.job_config import parse_config, roles_of
from openpaisdk.output import palette, print_notice
from openpaisdk.output.line_prefix import LinePrefixer
from openpaisdk.output.log_levels import LevelFilter
from openpaisdk.output.untrusted_text import log_output
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.follow_stream import Frame
    from openpaisdk.client.models import JobStatus
    from openpaisdk.output.time_prefix import TimePrefixer

    TaskName = tuple[str, int]

ALL = "all"
MAX_FOLLOWED_TASKS = 100
"""Each followed task needs a connection and a thread."""
MAX_LISTED_TASKS = 10
PREFIX_STYLES = ("cyan", "yellow", "green", "magenta", "blue")


def label(task: TaskName) -> str:
    return f"{task[0]}[{task[1]}]"


def tasks_of_config(config: Mapping[str, object]) -> list[TaskName]:
    """All tasks of a job, by its configuration."""
    return [(role.name, index) for role in roles_of(config) for index in range(role.instances)]


def tasks_of_job(cluster: ClusterClient, job: JobStatus) -> list[TaskName]:
    """All tasks of a job; those of a job that has not started yet are known only from its configuration."""
    if job.tasks:
        return [(task.role, task.index) for task in job.tasks]
    return tasks_of_config(parse_config(cluster.job_config(job.name, job.user)))


def select_tasks(tasks: Sequence[TaskName], wanted: Iterable[str], job: str) -> list[TaskName]:
    """The tasks that ``--task`` names: a role, ``role[index]``, ``role:index`` or ``all``."""
    selected: list[TaskName] = []
    for word in wanted:
        matches = [task for task in tasks if word in (task[0], label(task), f"{task[0]}:{task[1]}")]
        if not matches and word == ALL:
            matches = list(tasks)
        if not matches:
            few = ", ".join(map(label, tasks[:MAX_LISTED_TASKS]))
            more = f" and {len(tasks) - MAX_LISTED_TASKS} more" if len(tasks) > MAX_LISTED_TASKS else ""
            raise UsageError(f"The job {job} has no task {word!r}.", hint=f"Its tasks: {few}{more}.")
        selected += matches
    return list(dict.fromkeys(selected))


def limit_followed(tasks: list[TaskName]) -> list[TaskName]:
    """The tasks that can be followed at once; a notice says if there are more."""
    if len(tasks) > MAX_FOLLOWED_TASKS:
        print_notice(
            f"showing the first {MAX_FOLLOWED_TASKS} of {len(tasks)} tasks; --task ROLE:INDEX shows others"
        )
    return tasks[:MAX_FOLLOWED_TASKS]


def print_task_logs(
    cluster: ClusterClient,
    request: FollowRequest,
    tasks: Sequence[TaskName],
    *,
    in_parallel: bool,
    out: TextIO | None = None,
    level: str = "",
    show_events: bool = True,
    already_shown: Sequence[str] = (),
    on_silence: Callable[[str], None] | None = None,
    attempts: Mapping[TaskName, tuple[int, int]] | None = None,
    on_attempt: Callable[[TaskName, tuple[int, int]], None] | None = None,
) -> str:
    """Print the logs of several tasks, one after the other or, ``in_parallel``, each line as it arrives.

    Returns the job's final state, empty if it has not finished. ``on_silence`` is called with the job's state
    if no task has written anything. ``attempts``: which attempt of each task, by default the latest.
    ``on_attempt`` is called before each piece of a log, with the task and its attempt.
    """
    requests = {request.for_task(*task): task for task in tasks}
    if attempts:
        requests = {one.for_attempt(attempts[task]): task for one, task in requests.items()}
    logs = _TaskLogs(sys.stdout if out is None else out, tasks, level, in_parallel=in_parallel)
    if request.times:
        logs.add_times(request.name)
    printer = FollowPrinter(request, show_events=show_events, already_shown=already_shown)
    first = next(iter(requests))
    sys.stdout.flush()
    try:
        for one, frame in (
            follow_tasks(cluster, list(requests)) if in_parallel else _in_turn(cluster, list(requests))
        ):
            if frame.kind == "log":
                logs.begin_piece(requests[one], frame)
                if on_attempt is not None:
                    on_attempt(requests[one], attempt_of(frame))
                logs.write(requests[one], frame)
            elif one is first or frame.kind == "end":
                printer.print_frame(frame)  # every connection carries the job's states and events
    except KeyboardInterrupt:
        logs.end()
        report_interrupt(cluster, request)
        raise
    logs.end()
    if not logs.has_written and on_silence:
        on_silence(printer.state)
    return printer.final


def print_matches(
    cluster: ClusterClient,
    request: FollowRequest,
    tasks: Sequence[TaskName],
    wanted: str,
    of: int = 0,
    on_attempt: Callable[[TaskName, tuple[int, int]], None] | None = None,
) -> bool:
    """Print the lines of the tasks' logs that contain a text, as it finds them; False if none does.

    ``of``: how many tasks are searched in all; with several, each line has the task's name before it.
    ``on_attempt`` is called before each line, with the task and its attempt.
    """
    from openpaisdk.client.log_search import search_log

    out = log_output(sys.stdout)
    logs = _TaskLogs(sys.stdout, tasks, "", in_parallel=False) if max(of, len(tasks)) > 1 else None
    has_found = False
    for task in tasks:
        for frame in search_log(cluster, request.for_task(*task), wanted):
            has_found = True
            if logs is not None:
                logs.begin_piece(task, frame)
            if on_attempt is not None:
                on_attempt(task, attempt_of(frame))
            if logs is not None:
                logs.write(task, frame)
            else:
                out.write(frame.data)
                out.flush()
    return has_found


def _in_turn(
    cluster: ClusterClient, requests: Iterable[FollowRequest]
) -> Iterator[tuple[FollowRequest, Frame]]:
    for request in requests:
        for frame in follow(cluster, request):
            yield request, frame


class _TaskLogs:
    """The output of several tasks on one stream."""

    def __init__(self, stream: TextIO, tasks: Sequence[TaskName], level: str, *, in_parallel: bool):
        self._in_parallel = in_parallel
        self._out = log_output(stream)
        colours = palette(stream)
        width = max(len(label(task)) for task in tasks)
        self._sinks: dict[TaskName, LinePrefixer | LevelFilter | TimePrefixer] = {}
        for i, task in enumerate(tasks):
            prefix = f"{label(task):<{width}} |"
            sink = LinePrefixer(self._out, colours.paint(prefix, PREFIX_STYLES[i % len(PREFIX_STYLES)]) + " ")
            self._sinks[task] = LevelFilter(sink, level) if level else sink
        self._attempts: dict[TaskName, tuple[object, object]] = {}
        self._last: TaskName | None = None
        self._timed: dict[TaskName, TimePrefixer] = {}
        self.has_written = False

    def add_times(self, job: str) -> None:
        """Put the time of each line before it, after the task's name."""
        from openpaisdk.output.time_prefix import TimePrefixer

        on_missing = MissingTimesNotice(job)
        self._timed = {task: TimePrefixer(sink, on_missing) for task, sink in self._sinks.items()}
        self._sinks = dict(self._timed)

    def begin_piece(self, task: TaskName, frame: Frame) -> None:
        """End the last line of the task or attempt before, of which nothing more comes."""
        if self._last is not None and self._last != task and not self._in_parallel:
            self._sinks[self._last].end_line()
        self._last = task
        attempt = frame.head.get("attempt"), frame.head.get("taskAttempt")
        if self._attempts.setdefault(task, attempt) != attempt:
            self._sinks[task].end_line()
            self._attempts[task] = attempt
        if task in self._timed:
            begin_timed_piece(self._timed[task], frame)

    def write(self, task: TaskName, frame: Frame) -> None:
        sink = self._sinks[task]
        sink.write(frame.data)
        sink.flush()
        self.has_written = True

    def end(self) -> None:
        for sink in self._sinks.values():
            sink.end_line()
        self._out.flush()
