"""Output of a followed job: its log on stdout, notices on stderr, its final state as exit status."""

from __future__ import annotations

import contextlib
import sys

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest, attempt_of, times_of
from openpaisdk.client.models import FINAL_STATES, number, text
from openpaisdk.config.paths import display_path
from openpaisdk.jobs.job_notices import CONNECTION, STATE, EventFilter, JobNotice, job_notices
from openpaisdk.jobs.outcome import failure_details, known_solution, outcome_reason
from openpaisdk.output import format_duration, palette, print_notice
from openpaisdk.output.untrusted_text import log_output, printable
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.follow_stream import Frame
    from openpaisdk.client.models import JobStatus, Task
    from openpaisdk.jobs.task_array import TaskArray
    from openpaisdk.output.log_levels import LevelFilter
    from openpaisdk.output.time_prefix import TimePrefixer
    from openpaisdk.output.untrusted_text import TerminalLog

STATUSES = {"SUCCEEDED": 0, "FAILED": 3, "STOPPED": 4}


class FollowPrinter:
    """Prints states and events of a followed job as notices, and remembers its state.

    ``already_shown``: messages that are not printed again.
    """

    __slots__ = ("_events", "_name", "_on_state", "_show_events", "final", "state")

    def __init__(
        self,
        request: FollowRequest,
        *,
        on_state: Callable[[str], None] | None = None,
        show_events: bool = True,
        already_shown: Sequence[str] = (),
    ):
        self._name = request.name
        self._on_state = on_state
        self._show_events = show_events
        self._events = EventFilter(already_shown)
        self.state = ""
        self.final = ""
        """The final state; empty if the job has not finished."""

    def print_frame(self, frame: Frame) -> None:
        """Handle a frame of any kind but log."""
        if frame.kind == "state":
            state = text(frame.head, "state")
            if self._on_state and state != self.state:
                self._on_state(state)
            self.state = state
        elif frame.kind == "end":
            self.final = self.state = text(frame.head, "state")
        elif self._show_events and (notice := self._events.notice(frame)):
            _print_job_notice(self._name, notice)


def print_log(
    cluster: ClusterClient,
    request: FollowRequest,
    *,
    log: BinaryIO | LevelFilter | TerminalLog | None = None,
    on_state: Callable[[str], None] | None = None,
    show_events: bool = True,
    already_shown: Sequence[str] = (),
    on_silence: Callable[[str], None] | None = None,
    on_attempt: Callable[[tuple[int, int]], None] | None = None,
    timestamps: TimePrefixer | None = None,
) -> str:
    """Write a task's log as it arrives; returns the job's final state, empty if it has not finished.

    ``already_shown``: messages that are not printed again. ``on_silence`` is called with the job's state if
    there was no output, ``on_attempt`` with the attempt of each piece of the log. With ``timestamps`` this
    stream writes the log.
    """
    out = timestamps or (log if log is not None else log_output(sys.stdout))
    printer = FollowPrinter(request, on_state=on_state, show_events=show_events, already_shown=already_shown)
    printed = False
    last = b"\n"
    sys.stdout.flush()
    try:
        for frame in follow(cluster, request):
            if frame.kind == "log":
                if on_attempt is not None:
                    on_attempt(attempt_of(frame))
                if timestamps is not None:
                    begin_timed_piece(timestamps, frame)
                printed = True
                last = frame.data[-1:] or last
                out.write(frame.data)
                out.flush()
            else:
                printer.print_frame(frame)
    except KeyboardInterrupt:
        report_interrupt(cluster, request)
        raise
    if timestamps is not None:
        timestamps.end_line()
        timestamps.flush()
        last = b"\n"
    # The next notice starts on a new line, also where stdout and stderr go to the same terminal. The newline
    # goes to stderr: stdout gets only the job's own bytes.
    same_terminal = out.isatty() and sys.stderr.isatty()
    if last != b"\n" and (same_terminal or (request.follow and printer.final)):
        print_notice("")
    if not printed and on_silence:
        on_silence(printer.state)
    return printer.final


class MissingTimesNotice:
    """Says once that the log of a job has no times."""

    def __init__(self, job: str):
        self._job = job
        self._has_printed = False

    def __call__(self) -> None:
        if not self._has_printed:
            print_notice(f"The log of {self._job} has no time stamps: its cluster did not record them.")
        self._has_printed = True


def begin_timed_piece(timestamps: TimePrefixer, frame: Frame) -> None:
    """Tell the stream what the log frame, which is written next, has."""
    timestamps.begin_piece(attempt_of(frame), number(frame.head, "offset") or 0, times_of(frame))


def report_interrupt(cluster: ClusterClient, request: FollowRequest) -> None:
    """Print how to follow the job again after Ctrl-C."""
    command = f"pai logs -f {_job_argument(cluster, request)}"
    print_notice(f"\nStopped following; the job continues. Follow it again with: {command}")


def _print_job_notice(name: str, notice: JobNotice) -> None:
    line = notice.text if notice.kind == CONNECTION else f"{name}: {notice.text}"
    print_notice(palette(sys.stderr).paint(line, "yellow") if notice.is_warning else line)


def report_outcome(
    cluster: ClusterClient,
    request: FollowRequest,
    state: str,
    shown: Sequence[tuple[str, int]] | None = None,
) -> int:
    """Print how a job ended and where its files are; returns the command's exit status.

    ``shown``: the tasks whose logs were printed; by default the one of the request.
    """
    job = cluster.job(request.name, request.user)
    colours = palette(sys.stderr)
    reason = outcome_reason(job)
    failed = [task for task in job.tasks if task.state == "FAILED"] if state == "SUCCEEDED" else []
    # The tasks of an array are independent: the job succeeds, but the failed tasks must be reported.
    outcome = "finished" if failed else colours.state(state)
    if failed:
        array = task_array(cluster, request.name, request.user)
        names = ", ".join(_failed_task(task, array) for task in failed[:5])
        names += ", ..." if len(failed) > 5 else ""
        reason = f"{len(failed)} of its {len(job.tasks)} tasks failed: {names}"
    is_started = job.launched_ms is not None
    when = (
        f"after {format_duration(job.launched_ms, job.completed_ms)}" if is_started else "before it started"
    )
    print_notice(f"{job.name} {outcome} {when}" + (f": {reason}" if reason else ""))
    if not failed and (solution := known_solution(job)):
        print_notice(f"What to do: {printable(solution)}")
    role, index = job.trigger_task
    first = job.tasks[0].role if job.tasks else ""
    tasks = job.tasks
    if shown is None:
        shown = [(request.role or first, request.index or 0)]
    if state == "FAILED" and role and len(job.tasks) > 1:
        tasks = [task for task in tasks if (task.role, task.index) == (role, index)]
    if state == "FAILED" and role and (role, index) not in shown:
        job_name = _job_argument(cluster, request)
        if len(job.tasks) > 1:
            options = f"--role {role}" + (f" --index {index}" if index else "")
            failure = f"{role}[{index}] failed" + (
                f" with {reason}" if reason.startswith("exit code") else ""
            )
            print_notice(f"{failure}; see: pai logs {options} {job_name}")
        else:
            if "," not in reason and (last_line := failure_details(job).get("last line")):
                print_notice(f"Its last line: {printable(last_line)}")
            print_notice(f"Its log: pai logs {job_name}")
    if folder := next(filter(None, (task_folder(cluster, task) for task in tasks)), ""):
        if len(tasks) > 1:
            print_notice(f"The folders of its tasks: pai job-status {_job_argument(cluster, request)} tasks")
        else:
            print_notice(f"Its files are in {display_path(folder)}")
    return _exit_status(job, state)


def exit_status(cluster: ClusterClient, request: FollowRequest, state: str) -> int:
    """The exit status of a command that waited for a job, without a report."""
    if state != "SUCCEEDED":
        return STATUSES.get(state, 1)
    return _exit_status(cluster.job(request.name, request.user), state)


def _exit_status(job: JobStatus, state: str) -> int:
    """Exit status for a finished job: that of a failure if a task of a succeeded array failed."""
    has_failures = state == "SUCCEEDED" and any(task.state == "FAILED" for task in job.tasks)
    return STATUSES.get("FAILED" if has_failures else state, 1)


def _failed_task(task: Task, array: TaskArray | None) -> str:
    code = task.origin_exit_code
    details = [array.label(task.index)] if array else []
    details += [] if code is None else [f"exit code {code}"]
    return f"{task.role}[{task.index}]" + (f" ({', '.join(details)})" if details else "")


def task_array(cluster: ClusterClient, name: str, user: str = "") -> TaskArray | None:
    """The array of a job whose tasks have values; None for other jobs."""
    from openpaisdk.jobs.job_file import parse_job_text
    from openpaisdk.jobs.task_array import array_of_job

    try:
        return array_of_job(parse_job_text(cluster.job_config(name, user)))
    except PaiError:  # the values are optional: the tasks have numbers, too
        return None


def task_folder(cluster: ClusterClient, task: Task) -> str:
    """Working folder of a task on the embedded cluster; empty for other clusters."""
    if not cluster.is_embedded:
        return ""
    from openpaisdk.embedded.home import work_folder

    return work_folder(task.container_id)


def wait_for_job(
    cluster: ClusterClient,
    name: str,
    user: str = "",
    *,
    on_state: Callable[[str], None] | None = None,
    command: str = "wait",
    already_shown: Sequence[str] = (),
) -> str:
    """Wait without printing the log (``--wait``); returns the final state.

    ``command`` is the command suggested after Ctrl-C; ``already_shown``: messages that are not printed again.
    """
    state = ""
    request = FollowRequest(name, user, stream=NO_LOG)
    if on_state is None and sys.stderr.isatty():
        on_state = lambda now: _print_progress(name, now)  # noqa: E731
    with suggested_wait(cluster, request, command):
        for notice in job_notices(follow(cluster, request), already_shown):
            if notice.kind != STATE:
                _print_job_notice(name, notice)
                continue
            state = notice.text
            if on_state:
                on_state(state)
    return state


@contextlib.contextmanager
def suggested_wait(cluster: ClusterClient, request: FollowRequest, command: str) -> Iterator[None]:
    """Block in which Ctrl-C prints that the job continues, and the command that waits for it again."""
    try:
        yield
    except KeyboardInterrupt:
        again = f"pai {command} {_job_argument(cluster, request)}"
        print_notice(f"\nStopped waiting; the job continues. Wait again with: {again}")
        raise


def _print_progress(name: str, state: str) -> None:
    """Print a state for an interactive user, except the final one, which the command itself reports."""
    if state not in FINAL_STATES:
        print_notice(f"{name} {palette(sys.stderr).state(state)}")


def _job_argument(cluster: ClusterClient, request: FollowRequest) -> str:
    from openpaisdk.cli.jobs.job_selection import job_argument

    return job_argument(cluster, request.name, request.user)
