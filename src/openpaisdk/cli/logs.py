"""``pai logs``, ``pai connect-job`` and ``pai wait``: log, state changes and end of jobs."""

from __future__ import annotations

import sys
import time

from openpaisdk.cli.follow_output import STATUSES, announce_task, print_log, report_outcome, wait_for_job
from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.follow_stream import FollowRequest
from openpaisdk.connect import open_cluster
from openpaisdk.errors import PaiError
from openpaisdk.jobs.option_values import seconds
from openpaisdk.output import palette, print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

UNFINISHED_STATUS = 5


def logs(argv: list[str]) -> int:
    """``pai logs [options] job``"""
    parser = command_parser(
        "logs",
        "pai logs -f train_k3v9xq\npai logs --tail 20 --role worker --index 1 train_k3v9xq",
        output=False,
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until the job finishes")
    parser.add_argument(
        "--tail",
        type=int_at_least(0),
        metavar="N",
        help="start with the last N lines (default: the whole log)",
    )
    parser.add_argument("--role", default="", metavar="R", help="the task role (default: the first one)")
    parser.add_argument(
        "--index", type=int_at_least(0), metavar="I", help="the task's index in its role (default: 0)"
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
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    request = FollowRequest(
        args.job,
        args.user,
        role=args.role,
        index=args.index,
        stream=args.stream,
        tail=args.tail,
        follow=args.follow,
    )
    if args.follow:
        announce_task(cluster, request)
    level_filter = None
    if args.level:
        from openpaisdk.output.log_levels import LevelFilter

        level_filter = LevelFilter(sys.stdout.buffer, args.level)
    state = print_log(cluster, request, show_events=args.follow, log=level_filter)
    return report_outcome(cluster, request, state) if args.follow and state else 0


def connect_job(argv: list[str]) -> int:
    """``pai connect-job [options] job``"""
    parser = command_parser("connect-job", "pai connect-job train_k3v9xq", output=False)
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    colours = palette(sys.stdout)

    def print_state(state: str) -> None:
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {args.job}  {colours.state(state)}\n")
        sys.stdout.flush()

    state = wait_for_job(cluster, args.job, args.user, on_state=print_state, command="connect-job")
    return STATUSES.get(state, 1)


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
                if args.output == "table":
                    status = report_outcome(cluster, FollowRequest(name, args.user), states[name]) or status
                else:
                    status = STATUSES.get(states[name], 1) or status
    except WaitTimeout:
        left = [name for name in args.jobs if name not in states]
        print_notice(f"Not finished after {args.timeout} seconds: {', '.join(left)}")
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
