"""``pai list-jobs`` and ``pai job-status``: jobs as they are now."""

from __future__ import annotations

import sys

from openpaisdk.cli.following import files_of, reason
from openpaisdk.cli.parser import command_parser, whole_number
from openpaisdk.config.folders import shown
from openpaisdk.errors import UsageError
from openpaisdk.jobs.target import open_cluster
from openpaisdk.output import duration, moment, palette, say, show, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.values import Job, JobSummary, Task

EVERYBODY = "__all__"
PAGE = 50
STATES = ("WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN")


def list_jobs(argv: list[str]) -> int:
    """``pai list-jobs [options] [job]``"""
    parser = command_parser(
        "list-jobs", "pai list-jobs --state RUNNING\npai list-jobs --user __all__ -o json"
    )
    parser.add_argument("--user", default="", metavar="USER", help=f"whose jobs; {EVERYBODY} for everybody's")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        help="only jobs in this state; may be repeated",
        metavar="STATE",
    )
    parser.add_argument("--keyword", default="", metavar="TEXT", help="only jobs whose name holds this text")
    parser.add_argument("--limit", type=whole_number(1), default=PAGE, metavar="N", help=f"how many ({PAGE})")
    parser.add_argument("--offset", type=whole_number(0), metavar="N", help="leave out the first N")
    parser.add_argument("job", nargs="?", default="", help="show this job in full, as job-status does")
    args = parser.parse(argv)
    if args.job:
        who = [] if args.user in ("", EVERYBODY) else ["--user", args.user]
        return job_status(["-a", args.cluster_alias, "-o", args.output, *who, "--", args.job])
    for state in args.state:
        _check_state(state)
    cluster = open_cluster(args.cluster_alias, tell=say)
    whose = "" if args.user == EVERYBODY else args.user or cluster.user
    found = cluster.jobs(
        user=whose,
        state=",".join(s.upper() for s in args.state),
        keyword=args.keyword,
        limit=args.limit,
        offset=args.offset,
    )
    show([job.raw for job in found], args.output, lambda: _table(found, args.user == EVERYBODY))
    if args.output == "table":
        if not found and (args.state or args.keyword or args.offset):
            say("No jobs match.")
        elif not found:
            say("No jobs. Run one with: pai sub -- echo hello")
        elif len(found) == args.limit:
            say(f"Only the newest {args.limit} are shown; --limit N shows more.")
    return 0


def _check_state(words: str) -> None:
    for word in words.split(","):
        if word.strip().upper() in STATES:
            continue
        from difflib import get_close_matches

        near = get_close_matches(word.strip().upper(), STATES, 1)
        raise UsageError(
            f"There is no state {word!r}." + (f" Did you mean {near[0]}?" if near else ""),
            hint=f"A job is one of {', '.join(STATES)}.",
        )


def _table(jobs: list[JobSummary], with_user: bool) -> str:
    if not jobs:
        return ""
    headers = [
        "NAME",
        *(["USER"] if with_user else []),
        "STATE",
        "SUBMITTED",
        "DURATION",
        "GPUS",
        "TASKS",
        "VC",
    ]
    colours = palette(sys.stdout)
    state_at = 2 if with_user else 1
    rows = [
        [
            job.name,
            *([job.user] if with_user else []),
            job.state,
            moment(job.submitted_ms),
            duration(job.launched_ms, job.completed_ms),
            str(job.gpus),
            str(job.tasks),
            job.virtual_cluster,
        ]
        for job in jobs
    ]
    return table(
        headers,
        rows,
        right=frozenset(range(state_at + 2, state_at + 5)),
        paint=lambda i, cell: colours.state(cell) if i == state_at else cell,
    )


def job_status(argv: list[str]) -> int:
    """``pai job-status [options] job [config]``"""
    parser = command_parser(
        "job-status", "pai job-status train_k3v9xq\npai job-status train_k3v9xq config > again.yaml"
    )
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "query",
        nargs="?",
        choices=("config", "events"),
        help="its configuration, or what the cluster said about it",
    )
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=say)
    if args.query == "config":
        import yaml

        config = cluster.job_config(args.job, args.user)
        show(yaml.safe_load(config), "yaml" if args.output == "table" else args.output, str)
        return 0
    if args.query == "events":
        events = cluster.events(args.job, args.user)
        rows = [[e.kind, e.reason, e.message] for e in events]
        show(
            [e.raw for e in events],
            args.output,
            lambda: table(["TYPE", "REASON", "MESSAGE"], rows) if rows else "",
        )
        return 0
    job = cluster.job(args.job, args.user)
    why = reason(job)
    if job.state == "WAITING":
        from openpaisdk.cli.waiting import why_waiting

        why = why_waiting(cluster, args.job, args.user)
    raw = {**job.raw, "reason": why} if job.state == "WAITING" else job.raw
    show(raw, args.output, lambda: _detail(job, why, files_of(cluster, job)))
    return 0


def _exit(job: Job, task: Task) -> str:
    """A task's exit code; of the task that ended the job the cluster also knows what the program said."""
    code = task.exit_code
    if job.origin_exit_code is not None and (task.role, task.index) == job.ended_by:
        code = job.origin_exit_code
    return "-" if code is None else str(code)


def _detail(job: Job, why: str, files: list[str]) -> str:
    colours = palette(sys.stdout)
    lines = [
        f"{job.name}  {colours.state(job.state)}" + (f"  {why}" if why else ""),
        f"  user       {job.user}",
        f"  vc         {job.virtual_cluster}",
        f"  submitted  {moment(job.submitted_ms)}",
        f"  started    {moment(job.launched_ms)}",
        f"  ended      {moment(job.completed_ms)}",
        f"  duration   {duration(job.launched_ms, job.completed_ms)}",
        f"  retries    {job.retries}",
    ]
    lines += [f"  files      {shown(folder)}" for folder in files]
    if job.tasks:
        rows = [
            [
                f"{task.role}[{task.index}]",
                task.state,
                _exit(job, task),
                duration(task.launched_ms, task.completed_ms),
                task.ip or "-",
                " ".join(f"{label}={ports}" for label, ports in task.ports.items()) or "-",
            ]
            for task in job.tasks
        ]
        lines += [
            "",
            table(
                ["TASK", "STATE", "EXIT", "DURATION", "ADDRESS", "PORTS"],
                rows,
                right=frozenset({2, 3}),
                paint=lambda i, cell: colours.state(cell) if i == 1 else cell,
            ),
        ]
    return "\n".join(lines)
