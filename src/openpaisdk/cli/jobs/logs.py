"""``pai logs``, ``pai connect-job`` and ``pai wait``: log, state changes and end of jobs."""

from __future__ import annotations

import contextlib
import sys
import time

from openpaisdk.cli.jobs.attempt_logs import (
    AttemptHeadings,
    TaskHeadings,
    add_attempt_options,
    check_attempt_options,
    report_earlier,
    select_attempts,
)
from openpaisdk.cli.jobs.follow_output import (
    MissingTimesNotice,
    exit_status,
    print_log,
    report_outcome,
    suggested_wait,
    wait_for_job,
)
from openpaisdk.cli.jobs.task_logs import (
    limit_followed,
    print_matches,
    print_task_logs,
    select_tasks,
    tasks_of_job,
)
from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.follow_stream import FollowRequest
from openpaisdk.client.models import FINAL_STATES
from openpaisdk.client.task_attempts import attempts_of_task
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.notebook_link import NotebookServer, runs_notebook_server, visible_token
from openpaisdk.jobs.option_values import seconds
from openpaisdk.output import palette, print_notice, show
from openpaisdk.output.untrusted_text import log_output
from paiprotocol.errors import NotFound, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from openpaisdk.cli.jobs.task_logs import TaskName
    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus

UNFINISHED_STATUS = 5
MAX_SEARCHED_BYTES = 1024
"""Length of a text to search for, as clusters accept it."""


def logs(argv: list[str]) -> int:
    """``pai logs [options] job``"""
    args = _logs_parser().parse(argv)
    if args.grep is not None:
        _check_search(args)
    if args.timestamps and args.level:
        raise UsageError("Records that --level selects have their own times: leave out --timestamps.")
    check_attempt_options(args)
    if args.task and (args.role or args.index is not None):
        raise UsageError("--task names a task with its role and index: do not add --role or --index.")
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    request = FollowRequest(
        args.job,
        args.user,
        role=args.role,
        index=args.index,
        stream=args.stream,
        tail=args.tail,
        follow=args.follow,
        all_attempts=args.all_attempts,
        times=args.timestamps,
    )
    job = cluster.job(args.job, args.user)
    # Of a job without known tasks the cluster chooses the first one.
    tasks = tasks_of_job(cluster, job) or [("", 0)]
    named = _named_tasks(args, job, tasks)
    if args.grep is not None:
        return _print_matches(cluster, request, args, job, named or tasks[:1], len(tasks))
    shown = named or (tasks if args.follow else tasks[:1])
    if not args.attempt and not args.all_attempts:
        report_earlier(cluster, job, shown, args)
    if len(shown) < 2:
        if len(tasks) > 1 and not named:
            print_notice(_first_of(tasks))
        return _print_one(cluster, request.for_task(*shown[0]), args, job)
    attempts = select_attempts(cluster, job, shown, args.attempt) if args.attempt else None
    if attempts:
        shown = [task for task in shown if task in attempts]
    in_parallel = args.follow and not job.is_finished
    if in_parallel:
        shown = limit_followed(shown)
    state = print_task_logs(
        cluster,
        request,
        shown,
        in_parallel=in_parallel,
        level=args.level or "",
        show_events=args.follow,
        on_silence=lambda state: _report_silence(request, state),
        attempts=attempts,
        on_attempt=TaskHeadings(cluster, job, shown) if args.all_attempts else None,
    )
    return report_outcome(cluster, request, state, shown) if args.follow and state else 0


def _named_tasks(args: argparse.Namespace, job: JobStatus, tasks: Sequence[TaskName]) -> list[TaskName]:
    """The tasks that the options name; empty if they name none."""
    if args.task:
        return select_tasks(tasks, args.task, job.name)
    if not args.role and args.index is None:
        return []
    task = args.role or tasks[0][0], args.index or 0
    if args.attempt:
        return select_tasks(tasks, [f"{task[0]}:{task[1]}"], job.name)
    # The cluster says which roles and tasks there are, if there is none of these.
    return [task]


def _logs_parser() -> Parser:
    parser = command_parser(
        "logs",
        "pai logs -f train_k3v9xq\npai logs -f --task worker train_k3v9xq\n"
        "pai logs --tail 20 --task worker:1 train_k3v9xq\npai logs --grep error --task all train_k3v9xq\n"
        "pai logs --attempt 1 train_k3v9xq",
        "With -f, every line of a job with several tasks has the task's name before it; --task selects some\n"
        "of them. Without -f, the log of the first task is printed. The log of a single task is printed\n"
        "unchanged.",
        output=False,
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until the job finishes")
    parser.add_argument(
        "--tail",
        type=int_at_least(0),
        metavar="N",
        help="start with the last N lines (default: the whole log)",
    )
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="TASK",
        help="a task like worker:1 (or 'worker[1]'), the tasks of a role like worker, or all (default: all "
        "with -f, else the first); may be repeated",
    )
    parser.add_argument(
        "--role", default="", metavar="R", help="one task: its role (default: the first one); see --task"
    )
    parser.add_argument(
        "--index", type=int_at_least(0), metavar="I", help="one task: its index in its role (default: 0)"
    )
    parser.add_argument(
        "--stream",
        choices=("all", "stdout", "stderr"),
        default="all",
        help="the output stream (default: all)",
    )
    parser.add_argument(
        "--level",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        type=str.upper,
        help="only records of Python's logging with at least this level (see pai sub --capture-logging)",
    )
    parser.add_argument(
        "--grep",
        metavar="TEXT",
        help="only lines that contain this text, in upper or lower case; the cluster searches, so that a "
        "long log is not sent",
    )
    parser.add_argument(
        "--timestamps",
        action="store_true",
        help="begin each line with the time at which it was written, in your time zone; to a second, less "
        "exactly in the log of a task that writes for many hours",
    )
    add_attempt_options(parser)
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    return parser


def _check_search(args: argparse.Namespace) -> None:
    if args.follow or args.tail is not None or args.level or args.timestamps:
        options = "-f --timestamps" if args.timestamps else "-f"
        raise UsageError(
            "--grep searches the whole log: it cannot be combined with --follow, --tail, --level or "
            "--timestamps.",
            hint=f"To search what follows: pai logs {options} {args.job} | grep TEXT",
        )
    if not args.grep or "\n" in args.grep or len(args.grep.encode("utf-8", "replace")) > MAX_SEARCHED_BYTES:
        raise UsageError(f"--grep needs a text of one line and at most {MAX_SEARCHED_BYTES} bytes.")


def _print_matches(
    cluster: ClusterClient,
    request: FollowRequest,
    args: argparse.Namespace,
    job: JobStatus,
    searched: Sequence[TaskName],
    count: int,
) -> int:
    """Print the lines that contain the text of ``--grep``, of the chosen tasks and attempts."""
    if count > 1 and not (args.task or args.role or args.index is not None):
        print_notice(_first_of(tasks_of_job(cluster, job)))
    has_found = False
    if args.all_attempts:
        headings = TaskHeadings(cluster, job, searched)
        for task in searched:
            for attempt in attempts_of_task(cluster, job, *task):
                chosen = request.for_attempt(attempt)
                has_found |= print_matches(
                    cluster, chosen, [task], args.grep, of=len(searched), on_attempt=headings
                )
    elif args.attempt:
        for task, attempt in select_attempts(cluster, job, searched, args.attempt).items():
            chosen = request.for_attempt(attempt)
            has_found |= print_matches(cluster, chosen, [task], args.grep, of=len(searched))
    else:
        report_earlier(cluster, job, searched, args)
        has_found = print_matches(cluster, request, searched, args.grep)
    if not has_found:
        print_notice(f"No line of the log of {request.name} contains {args.grep!r}.")
    return 0


def _first_of(tasks: Sequence[TaskName]) -> str:
    from openpaisdk.cli.jobs.task_logs import label

    return f"showing {label(tasks[0])}, the first of {len(tasks)} tasks; --task all shows all"


def _print_one(
    cluster: ClusterClient, request: FollowRequest, args: argparse.Namespace, job: JobStatus
) -> int:
    """Print the log of one task, byte for byte."""
    task = request.role, request.index or 0
    if args.attempt:
        request = request.for_attempt(select_attempts(cluster, job, [task], args.attempt)[task])
    headings = AttemptHeadings(attempts_of_task(cluster, job, *task)) if args.all_attempts else None
    level_filter = None
    if args.level:
        from openpaisdk.output.log_levels import LevelFilter

        level_filter = LevelFilter(log_output(sys.stdout), args.level)
    timestamps = None
    if args.timestamps:
        from openpaisdk.output.time_prefix import TimePrefixer

        timestamps = TimePrefixer(log_output(sys.stdout), MissingTimesNotice(request.name))
    is_silent = False

    def report_silence(state: str) -> None:
        nonlocal is_silent
        is_silent = True
        _report_silence(request, state)

    state = print_log(
        cluster,
        request,
        show_events=args.follow,
        log=level_filter,
        on_silence=report_silence,
        on_attempt=headings,
        timestamps=timestamps,
    )
    if level_filter is not None:
        level_filter.end_line()
        if not level_filter.has_passed and not is_silent:
            print_notice(f"{request.name} has written no records of level {args.level} or higher.")
    return report_outcome(cluster, request, state) if args.follow and state else 0


def _report_silence(request: FollowRequest, state: str) -> None:
    what = "no output" if request.stream == "all" else f"nothing to {request.stream}"
    if state in FINAL_STATES:
        print_notice(f"{request.name} has written {what}.")
    else:
        print_notice(f"{request.name} is {state or 'UNKNOWN'} and has written {what} yet.")


def connect_job(argv: list[str]) -> int:
    """``pai connect-job [options] job``"""
    parser = command_parser(
        "connect-job",
        "pai connect-job train_k3v9xq",
        "Of an interactive notebook (pai notebook-job --interactive) the link is printed, too. Where the\n"
        "job runs on another machine, it works until you press Ctrl-C.",
        output=False,
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    colours = palette(sys.stdout)

    def print_state(state: str) -> None:
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {args.job}  {colours.state(state)}\n")
        sys.stdout.flush()

    with contextlib.ExitStack() as links:
        with suggested_wait(cluster, FollowRequest(args.job, args.user), "connect-job"):
            status = _print_notebook_link(cluster, args.job, args.user, links)
        if status is not None:
            return status
        state = wait_for_job(cluster, args.job, args.user, on_state=print_state, command="connect-job")
    return exit_status(cluster, FollowRequest(args.job, args.user), state)


def _print_notebook_link(
    cluster: ClusterClient, job: str, user: str, links: contextlib.ExitStack
) -> int | None:
    """Print the link of an interactive notebook, valid until ``links`` closes; a status if its job ended."""
    config = ""
    with contextlib.suppress(NotFound):  # if the job is missing, too, that is said afterwards
        config = cluster.job_config(job, user)
    if not runs_notebook_server(config) or cluster.job(job, user).state in FINAL_STATES:
        return None
    from openpaisdk.cli.interactive.interactive_notebook import Reconnection, wait_for_server

    answer = wait_for_server(cluster, job, user)
    if isinstance(answer, int):
        return answer
    server = NotebookServer(*answer, visible_token(config))
    try:
        link = links.enter_context(Reconnection(cluster, job, user, server)).link
    except PaiError as e:  # another user's job, or a cluster that opens no connections
        print_notice(f"There is no link of the notebook for you: {e.message}")
    else:
        print(link, flush=True)
    return None


def wait(argv: list[str]) -> int:
    """``pai wait [options] job ...``"""
    parser = command_parser("wait", "pai wait train_k3v9xq && echo succeeded")
    parser.add_argument(
        "--timeout",
        type=_timeout_s,
        metavar="TIME",
        help="the longest time to wait, like 90 (seconds) or 2h (default: no limit)",
    )
    parser.add_argument("--user", default="", metavar="USER", help="the jobs' owner (default: you)")
    parser.add_argument("jobs", nargs="+", metavar="job", help="the jobs' names")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    states: dict[str, str] = {}
    status = 0
    try:
        with _Deadline(args.timeout or None):
            for name in args.jobs:
                if args.timeout == 0:
                    _require_finished(cluster, name, args.user)
                states[name] = wait_for_job(cluster, name, args.user)
                request = FollowRequest(name, args.user)
                if args.output == "table":
                    status = report_outcome(cluster, request, states[name], shown=()) or status
                else:
                    status = exit_status(cluster, request, states[name]) or status
    except WaitTimeout:
        unfinished = [name for name in args.jobs if name not in states]
        limit = "1 second" if args.timeout == 1 else f"{args.timeout} seconds"
        print_notice(f"Not finished after {limit}: {', '.join(unfinished)}")
        return UNFINISHED_STATUS
    show(states, args.output, lambda: "")
    return status


def _timeout_s(text: str) -> int:
    """A duration in seconds, or with a unit; 0 checks once without waiting."""
    return 0 if text == "0" else seconds(text)


class WaitTimeout(PaiError):
    """The timeout of ``pai wait`` expired."""


def _require_finished(cluster: ClusterClient, name: str, user: str) -> None:
    if not cluster.job(name, user).is_finished:
        raise WaitTimeout("The timeout expired.")


class _Deadline:
    """Interrupts the main thread with ``WaitTimeout`` after some seconds; None means never."""

    def __init__(self, seconds: int | None):
        self.seconds = seconds

    def __enter__(self) -> None:
        if self.seconds is None:
            return
        if sys.platform == "win32":
            import threading

            self.timer = threading.Timer(self.seconds, self._interrupt)
            self.timer.daemon = True
            self.timer.start()
        else:
            import signal

            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 0.001))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.seconds is None:
            return
        if sys.platform == "win32":
            self.timer.cancel()
            if kind is KeyboardInterrupt and self.timer.finished.is_set():
                raise WaitTimeout("The timeout expired.")
        else:
            import signal

            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def _interrupt() -> None:
        import _thread

        _thread.interrupt_main()

    @staticmethod
    def _on_alarm(*_: object) -> None:
        raise WaitTimeout("The timeout expired.")
