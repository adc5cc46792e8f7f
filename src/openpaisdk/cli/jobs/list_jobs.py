"""``pai list-jobs``: jobs of a cluster as a table, once or kept up to date (``--watch``)."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.models import check_states
from openpaisdk.connect import open_cluster
from openpaisdk.output import (
    format_age,
    format_duration,
    format_time,
    palette,
    print_notice,
    show,
    table,
    terminal_columns,
)
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobSummary

ALL_USERS = "__all__"
PAGE_SIZE = 50
WATCH_INTERVAL_S = 2
RELATIVE, ABSOLUTE = "relative", "absolute"
JUST_SUBMITTED = "just submitted"
QUEUED = "queued behind earlier jobs"


def list_jobs(argv: list[str]) -> int:
    """``pai list-jobs [options] [job]``"""
    args = _list_parser().parse(argv)
    if args.watch and args.job.isdecimal() and args.job.strip("0"):  # --watch 5
        args.watch, args.job = int(args.job), ""
    if args.watch and (args.job or args.output != "table"):
        reason = "shows a list of jobs" if args.job else "prints for people"
        other = f"pai connect-job {args.job}" if args.job else f"pai list-jobs -o {args.output}, repeated"
        raise UsageError(f"list-jobs: --watch {reason}.", hint=f"Use {other}, instead.")
    if args.job:
        from openpaisdk.cli.jobs.job_status import job_status

        owner = [] if args.user in ("", ALL_USERS) else ["--user", args.user]
        return job_status(["-a", args.cluster_alias, "-o", args.output, *owner, "--", args.job])
    for state in args.state:
        check_states(state)
    since = _since(args.since) if args.since else 0
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    with_user, with_age = args.user == ALL_USERS, (args.time or _default_time()) == RELATIVE
    if args.watch:
        from openpaisdk.cli.jobs.job_watch import watch_jobs

        return watch_jobs(
            cluster,
            lambda: _query(cluster, args, since),
            lambda jobs, columns: _table(jobs, with_user, with_age, columns),
            args.watch,
        )
    jobs, has_more = _query(cluster, args, since)
    columns = terminal_columns(sys.stdout)
    show([job.raw for job in jobs], args.output, lambda: _table(jobs, with_user, with_age, columns))
    if args.output == "table":
        _print_list_notices(args, len(jobs), has_more)
    return 0


def _print_list_notices(args: argparse.Namespace, count: int, has_more: bool) -> None:
    """Say why a list is empty, or how to see more."""
    is_filtered = args.state or args.keyword or args.offset or args.tag or args.since or args.virtual_cluster
    if not count and is_filtered:
        print_notice("No jobs match.")
    elif not count:
        print_notice("No jobs. Run one with: pai sub -- echo hello")
    elif has_more:
        print_notice(
            f"There may be more: --offset {args.offset + count} lists the next page, --limit N more, "
            "--all all jobs."
        )


def _list_parser() -> Parser:
    parser = command_parser(
        "list-jobs",
        "pai list-jobs --state RUNNING\npai list-jobs --user __all__ --since 2h -o json\n"
        "pai list-jobs --watch --state RUNNING --state WAITING",
        "The newest jobs come first. On a terminal the table fits the window: if it is too narrow, long\n"
        "pending reasons and names are shortened, and the columns VC, TASKS and GPUS left out. In a pipe it\n"
        "is complete.",
    )
    add = parser.add_argument
    add(
        "--user",
        default="",
        metavar="USER",
        help=f"the jobs' owner (default: you); {ALL_USERS} for all users",
    )
    add(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only jobs in this state; may be repeated",
    )
    add(
        "--vc",
        "--virtual-cluster",
        dest="virtual_cluster",
        default="",
        metavar="VC",
        help="only jobs in this virtual cluster",
    )
    add("--keyword", default="", metavar="TEXT", help="only jobs whose name contains this text")
    add("--tag", action="append", default=[], metavar="TAG", help="only jobs with this tag; may be repeated")
    add("--since", default="", metavar="TIME", help="only jobs submitted since: 2h, 3d, or 2026-11-15")
    add(
        "--limit",
        type=int_at_least(1),
        default=PAGE_SIZE,
        metavar="N",
        help=f"the maximum number of jobs (default: {PAGE_SIZE})",
    )
    add("--offset", type=int_at_least(0), default=0, metavar="N", help="skip the first N jobs")
    add("--all", action="store_true", help="list all jobs")
    add(
        "--time",
        choices=(RELATIVE, ABSOLUTE),
        help=f"how times are shown: {RELATIVE} (3m ago) or {ABSOLUTE} (default: {RELATIVE} on a terminal)",
    )
    add(
        "--watch",
        nargs="?",
        type=int_at_least(1),
        const=WATCH_INTERVAL_S,
        metavar="SECONDS",
        help=f"keep the list up to date until Ctrl-C, every {WATCH_INTERVAL_S} seconds or as "
        "--watch=SECONDS; in a pipe, print a line for each change of a state",
    )
    add("job", nargs="?", default="", help="show this job in detail, like job-status")
    return parser


def _query(cluster: ClusterClient, args: argparse.Namespace, since: int) -> tuple[list[JobSummary], bool]:
    """The selected jobs, and whether there may be more."""
    user = "" if args.user == ALL_USERS else args.user or cluster.user
    state = ",".join(s.upper() for s in args.state)
    limit = None if args.all else args.limit
    vc, tags = args.virtual_cluster, ",".join(args.tag)
    if limit is not None and not since:
        jobs = cluster.jobs(
            user=user,
            state=state,
            keyword=args.keyword,
            virtual_cluster=vc,
            tags=tags,
            limit=limit,
            offset=args.offset or None,
            reasons=True,
        )
        return jobs, len(jobs) == limit
    found: list[JobSummary] = []
    for job in cluster.all_jobs(
        user=user,
        state=state,
        keyword=args.keyword,
        virtual_cluster=vc,
        tags=tags,
        offset=args.offset,
        reasons=True,
    ):
        if (job.submitted_ms or 0) < since:  # sorted by time, newest first: all further jobs are older
            break
        if len(found) == limit:
            return found, True
        found.append(job)
    return found, False


def _since(text: str) -> int:
    from openpaisdk.jobs.option_values import timestamp_ms

    return timestamp_ms(text)


def _default_time() -> str:
    return RELATIVE if terminal_columns(sys.stdout) else ABSOLUTE


def _table(jobs: list[JobSummary], with_user: bool, with_age: bool, columns: int | None) -> str:
    """The jobs as a table; ``columns``: width of the window, None for any width."""
    if not jobs:
        return ""
    headers = ["NAME", "USER", "STATE", "SUBMITTED", "DURATION", "GPUS", "TASKS", "VC", "PENDING REASON"]
    rows = [
        [
            job.name,
            job.user,
            job.state,
            format_age(job.submitted_ms) if with_age else format_time(job.submitted_ms),
            format_duration(job.launched_ms, job.completed_ms),
            str(job.gpus),
            f"{job.tasks}, {job.failed_tasks} failed" if job.failed_tasks else str(job.tasks),
            job.virtual_cluster,
            _pending_reason(job),
        ]
        for job in jobs
    ]
    name, user, state, duration, gpus, tasks, vc, reason = 0, 1, 2, 4, 5, 6, 7, 8
    hidden = [] if with_user else [user]
    if not any("reason" in job.raw for job in jobs):  # no job is pending, or the cluster reports no reasons
        hidden.append(reason)
    colours = palette(sys.stdout)
    # Failed tasks of a job that succeeded are shown nowhere else.
    has_failures = any(job.failed_tasks for job in jobs)
    return table(
        headers,
        rows,
        right=frozenset((duration, gpus, tasks)),
        paint=lambda i, cell: colours.state(cell) if i == state else cell,
        hide=hidden,
        columns=columns,
        fit=(
            (reason, 24),
            (vc, 0),
            *(() if has_failures else ((tasks, 0),)),
            (gpus, 0),
            (name, 24),
            (reason, 10),
            (user, 8),
            (name, 14),
            (duration, 0),
            (tasks, 0),
        ),
        keep_ends=frozenset((name,)),
    )


def _pending_reason(job: JobSummary) -> str:
    if "reason" not in job.raw:
        return ""
    from openpaisdk.cli.jobs.pending_reason import is_recent

    return job.reason or (JUST_SUBMITTED if is_recent(job.submitted_ms) else QUEUED)
