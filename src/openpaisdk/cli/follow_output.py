"""Output of a followed job: its log on stdout, notices on stderr, its final state as exit status."""

from __future__ import annotations

import sys

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest
from openpaisdk.client.models import text
from openpaisdk.config.clusters import alias_option
from openpaisdk.config.paths import display_path
from openpaisdk.errors import PaiError
from openpaisdk.jobs.job_notices import CONNECTION, STATE, EventFilter, JobNotice, job_notices
from openpaisdk.jobs.outcome import known_solution, outcome_reason
from openpaisdk.output import format_duration, palette, print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, Task
    from openpaisdk.jobs.task_array import TaskArray
    from openpaisdk.output.log_levels import LevelFilter

STATUSES = {"SUCCEEDED": 0, "FAILED": 3, "STOPPED": 4}


def print_log(
    cluster: ClusterClient,
    request: FollowRequest,
    *,
    log: BinaryIO | LevelFilter | None = None,
    on_state: Callable[[str], None] | None = None,
    show_events: bool = True,
    told: Sequence[str] = (),
) -> str:
    """Write a job's log as it arrives; returns the job's final state, empty if it has not finished.

    ``told``: messages that the user has read already.
    """
    out = log if log is not None else sys.stdout.buffer
    known_state = final = ""
    printed = False
    last = b"\n"
    events = EventFilter(told)
    sys.stdout.flush()
    try:
        for frame in follow(cluster, request):
            if frame.kind == "log":
                printed = True
                last = frame.data[-1:] or last
                out.write(frame.data)
                out.flush()
            elif frame.kind == "state":
                state = text(frame.head, "state")
                if on_state and state != known_state:
                    on_state(state)
                known_state = state
            elif frame.kind == "end":
                final = text(frame.head, "state")
            elif show_events and (notice := events.notice(frame)):
                _print_job_notice(request.name, notice)
    except KeyboardInterrupt:
        command = f"pai logs -f {_shell_name(cluster, request)}"
        print_notice(f"\nStopped following; the job continues. Follow it again with: {command}")
        raise
    # The next notice starts on a new line, also where stdout and stderr go to the same terminal. The newline
    # goes to stderr: stdout gets only the job's own bytes.
    same_terminal = out.isatty() and sys.stderr.isatty()
    if last != b"\n" and (same_terminal or (request.follow and final)):
        print_notice("")
    if not printed and not final and sys.stderr.isatty():
        print_notice(f"{request.name} is {known_state or 'UNKNOWN'} and has written no output yet.")
    return final


def _print_job_notice(name: str, notice: JobNotice) -> None:
    line = notice.text if notice.kind == CONNECTION else f"{name}: {notice.text}"
    print_notice(palette(sys.stderr).paint(line, "yellow") if notice.is_warning else line)


def report_outcome(cluster: ClusterClient, request: FollowRequest, state: str) -> int:
    """Print how a job ended and where its files are; returns the command's exit status."""
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
        from openpaisdk.output.table import printable

        print_notice(f"What to do: {printable(solution)}")
    role, index = job.trigger_task
    first = job.tasks[0].role if job.tasks else ""
    tasks = job.tasks
    if state == "FAILED" and role and (request.role or first, request.index or 0) != (role, index):
        options = f"--role {role}" + (f" --index {index}" if index else "")
        failure = f"{role}[{index}] failed" + (f" with {reason}" if reason.startswith("exit code") else "")
        print_notice(f"{failure}; see: pai logs {options} {_shell_name(cluster, request)}")
        tasks = [task for task in tasks if (task.role, task.index) == (role, index)]
    for folder in task_folders(cluster, job, tasks)[:1]:
        print_notice(f"Its files are in {display_path(folder)}")
    return STATUSES.get("FAILED" if failed else state, 1)


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


def task_folders(cluster: ClusterClient, job: JobStatus, tasks: list[Task] | None = None) -> list[str]:
    """Working folders of a job's tasks on the embedded cluster; empty for other clusters."""
    if not cluster.is_embedded:
        return []
    from openpaisdk.embedded.home import work_folder

    return [
        folder
        for task in (job.tasks if tasks is None else tasks)
        if (folder := work_folder(task.container_id))
    ]


def announce_task(cluster: ClusterClient, request: FollowRequest) -> None:
    """Print which of several tasks is shown, unless the user selected one."""
    if request.role or request.index is not None:
        return
    tasks = cluster.job(request.name, request.user).tasks
    if tasks:
        announce_first_task(tasks[0].role, len(tasks))


def announce_first_task(role: str, count: int) -> None:
    """The notice of ``announce_task``, for callers that already know the job's tasks."""
    if count > 1:
        print_notice(f"showing {role}[0], the first of {count} tasks; --role and --index show others")


def follow_to_end(
    cluster: ClusterClient, request: FollowRequest, *, log: BinaryIO | None = None, told: Sequence[str] = ()
) -> int:
    """Print the log, then the outcome: implements ``--follow``."""
    state = print_log(cluster, request, log=log, told=told)
    return report_outcome(cluster, request, state)


def wait_for_job(
    cluster: ClusterClient,
    name: str,
    user: str = "",
    *,
    on_state: Callable[[str], None] | None = None,
    command: str = "wait",
    told: Sequence[str] = (),
) -> str:
    """Wait without printing the log (``--wait``); returns the final state.

    ``command`` is the command suggested after Ctrl-C; ``told``: messages that the user has read already.
    """
    state = ""
    request = FollowRequest(name, user, stream=NO_LOG)
    if on_state is None and sys.stderr.isatty():  # show progress to an interactive user
        on_state = lambda now: print_notice(f"{name} {palette(sys.stderr).state(now)}")  # noqa: E731
    try:
        for notice in job_notices(follow(cluster, request), told):
            if notice.kind != STATE:
                _print_job_notice(name, notice)
                continue
            state = notice.text
            if on_state:
                on_state(state)
    except KeyboardInterrupt:
        again = f"pai {command} {_shell_name(cluster, request)}"
        print_notice(f"\nStopped waiting; the job continues. Wait again with: {again}")
        raise
    return state


def _shell_name(cluster: ClusterClient, request: FollowRequest) -> str:
    """Arguments that name the job in a command line, with ``-a`` where another cluster is selected."""
    name = f"{request.user}~{request.name}" if request.user not in ("", cluster.user) else request.name
    return alias_option(cluster.alias) + name
