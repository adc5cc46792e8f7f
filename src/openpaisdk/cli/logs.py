"""``pai logs``, ``pai connect-job`` and ``pai wait``: jobs as they go on."""

from __future__ import annotations

import sys
import time

from openpaisdk.cli.follow_output import STATUSES, announce_task, print_log, report_outcome, wait_for_job
from openpaisdk.cli.parser import command_parser, whole_number
from openpaisdk.client.follow_stream import FollowRequest
from openpaisdk.connect import open_cluster
from openpaisdk.errors import PaiError
from openpaisdk.jobs.option_values import seconds
from openpaisdk.output import palette, print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

NOT_IN_TIME = 5


def logs(argv: list[str]) -> int:
    """``pai logs [options] job``"""
    parser = command_parser(
        "logs",
        "pai logs -f train_k3v9xq\npai logs --tail 20 --role worker --index 1 train_k3v9xq",
        output=False,
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    parser.add_argument("--tail", type=whole_number(0), metavar="N", help="begin with the last N lines")
    parser.add_argument("--role", default="", metavar="R", help="the task role (the first one)")
    parser.add_argument("--index", type=whole_number(0), metavar="I", help="which task of the role (0)")
    parser.add_argument(
        "--stream", choices=("all", "stdout", "stderr"), default="all", help="which output (all)"
    )
    parser.add_argument(
        "--level",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        type=str.upper,
        help="only what Python's logging wrote of this level or above (see sub --capture-logging)",
    )
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    wanted = FollowRequest(
        args.job,
        args.user,
        role=args.role,
        index=args.index,
        stream=args.stream,
        tail=args.tail,
        follow=args.follow,
    )
    if args.follow:
        announce_task(cluster, wanted)
    sieve = None
    if args.level:
        from openpaisdk.output.log_levels import LevelFilter

        sieve = LevelFilter(sys.stdout.buffer, args.level)
    state = print_log(cluster, wanted, remarks=args.follow, log=sieve)
    return report_outcome(cluster, wanted, state) if args.follow and state else 0


def connect_job(argv: list[str]) -> int:
    """``pai connect-job [options] job``"""
    parser = command_parser("connect-job", "pai connect-job train_k3v9xq", output=False)
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    colours = palette(sys.stdout)

    def tell(state: str) -> None:
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {args.job}  {colours.state(state)}\n")
        sys.stdout.flush()

    state = wait_for_job(cluster, args.job, args.user, on_state=tell, command="connect-job")
    return STATUSES.get(state, 1)


def wait(argv: list[str]) -> int:
    """``pai wait [options] job ...``"""
    parser = command_parser("wait", "pai wait train_k3v9xq && echo it worked")
    parser.add_argument(
        "--timeout", type=_time, metavar="TIME", help="give up after this time, like 90 or 2h"
    )
    parser.add_argument("--user", default="", metavar="USER", help="whose jobs, if not yours")
    parser.add_argument("jobs", nargs="+", metavar="job", help="the jobs' names")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    ends: dict[str, str] = {}
    status = 0
    try:
        with _Deadline(args.timeout or None):
            for name in args.jobs:
                if args.timeout == 0:
                    _look(cluster, name, args.user)
                ends[name] = wait_for_job(cluster, name, args.user)
                if args.output == "table":
                    status = report_outcome(cluster, FollowRequest(name, args.user), ends[name]) or status
                else:
                    status = STATUSES.get(ends[name], 1) or status
    except WaitTimeout:
        left = [name for name in args.jobs if name not in ends]
        print_notice(f"Not over after {args.timeout} seconds: {', '.join(left)}")
        return NOT_IN_TIME
    show(ends, args.output, lambda: "")
    return status


def _time(text: str) -> int:
    """Seconds, or a time as everywhere; 0 only looks."""
    return 0 if text == "0" else seconds(text)


class WaitTimeout(PaiError):
    pass


def _look(cluster: ClusterClient, name: str, user: str) -> None:
    if not cluster.job(name, user).is_finished:
        raise WaitTimeout("Time is up.")


class _Deadline:
    """Ends what the main thread waits for after some seconds; None never does."""

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

            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 0.001))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.seconds is None:
            return
        if sys.platform == "win32":
            self.timer.cancel()
            if kind is KeyboardInterrupt and self.timer.finished.is_set():
                raise WaitTimeout("Time is up.")
        else:
            import signal

            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def _interrupt() -> None:
        import _thread

        _thread.interrupt_main()

    @staticmethod
    def _ring(*_: object) -> None:
        raise WaitTimeout("Time is up.")
