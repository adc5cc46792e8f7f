"""``pai list-jobs`` and ``pai job-status``: state of jobs."""

from __future__ import annotations

import sys

from openpaisdk.cli.follow_output import task_array, task_folders
from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.models import check_states, text
from openpaisdk.config.paths import display_path
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.outcome import failure_details, outcome_reason
from openpaisdk.output import format_duration, format_time, palette, print_notice, show, table
from openpaisdk.output.table import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, JobSummary
    from openpaisdk.jobs.task_array import TaskArray

ALL_USERS = "__all__"
PAGE_SIZE = 50
MAX_REASON_LENGTH = 60
MAX_FOLDERS = 4
JUST_SUBMITTED = "just submitted"
QUEUED = "queued behind earlier jobs"


def list_jobs(argv: list[str]) -> int:
    """``pai list-jobs [options] [job]``"""
    parser = command_parser(
        "list-jobs",
        "pai list-jobs --state RUNNING\npai list-jobs --user __all__ --since 2h -o json\n"
        "pai list-jobs --limit 20 --offset 20",
        "The newest jobs come first.",
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
    add("job", nargs="?", default="", help="show this job in detail, like job-status")
    args = parser.parse(argv)
    if args.job:
        owner = [] if args.user in ("", ALL_USERS) else ["--user", args.user]
        return job_status(["-a", args.cluster_alias, "-o", args.output, *owner, "--", args.job])
    for state in args.state:
        check_states(state)
    since = _since(args.since) if args.since else 0
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    jobs, has_more = _query(cluster, args, since)
    show([job.raw for job in jobs], args.output, lambda: _table(jobs, args.user == ALL_USERS))
    if args.output == "table":
        is_filtered = (
            args.state or args.keyword or args.offset or args.tag or args.since or args.virtual_cluster
        )
        if not jobs and is_filtered:
            print_notice("No jobs match.")
        elif not jobs:
            print_notice("No jobs. Run one with: pai sub -- echo hello")
        elif has_more:
            offset = args.offset + len(jobs)
            print_notice(
                f"There may be more: --offset {offset} lists the next page, --limit N more, --all all jobs."
            )
    return 0


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
    # Only if a job is pending and the cluster reports reasons.
    if has_reasons := any("reason" in job.raw for job in jobs):
        headers.append("PENDING REASON")
    colours = palette(sys.stdout)
    state_at = 2 if with_user else 1
    rows = [
        [
            job.name,
            *([job.user] if with_user else []),
            job.state,
            format_time(job.submitted_ms),
            format_duration(job.launched_ms, job.completed_ms),
            str(job.gpus),
            str(job.tasks),
            job.virtual_cluster,
            *([_short_reason(job)] if has_reasons else []),
        ]
        for job in jobs
    ]
    return table(
        headers,
        rows,
        right=frozenset(range(state_at + 2, state_at + 5)),
        paint=lambda i, cell: colours.state(cell) if i == state_at else cell,
    )


def _short_reason(job: JobSummary) -> str:
    """Pending reason shortened to fit a table cell; job-status prints it in full."""
    if "reason" not in job.raw:
        return ""
    from openpaisdk.cli.pending_reason import is_recent

    reason = job.reason or (JUST_SUBMITTED if is_recent(job.submitted_ms) else QUEUED)
    return reason if len(reason) <= MAX_REASON_LENGTH else reason[: MAX_REASON_LENGTH - 3].rstrip() + "..."


def job_status(argv: list[str]) -> int:
    """``pai job-status [options] job [config|ssh|events]``"""
    parser = command_parser(
        "job-status", "pai job-status train_k3v9xq\npai job-status train_k3v9xq config > again.yaml"
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "query",
        nargs="?",
        choices=("config", "ssh", "events"),
        help="print its configuration, ssh commands or events instead",
    )
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    if args.query == "config":
        import yaml

        config = cluster.job_config(args.job, args.user)
        show(yaml.safe_load(config), "yaml" if args.output == "table" else args.output, str)
        return 0
    if args.query == "ssh":
        ssh = cluster.job_ssh(args.job, args.user)
        show(ssh, args.output, lambda: _ssh_lines(ssh))
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
    reason = text(job.raw, "reason") or outcome_reason(job)
    if job.state == "WAITING" and not reason:
        from openpaisdk.cli.pending_reason import pending_reason

        reason = pending_reason(cluster, job)
    raw = {**job.raw, "reason": reason} if job.state == "WAITING" else job.raw

    def render() -> str:
        from openpaisdk.cli.pending_reason import unmet_requests

        for message in unmet_requests(cluster, job):
            print_notice(message)
        array = task_array(cluster, args.job, args.user) if len(job.tasks) > 1 else None
        return _detail(job, reason, task_folders(cluster, job), array)

    show(raw, args.output, render)
    return 0


def _ssh_lines(info: dict[str, object]) -> str:
    """An ssh command for each container."""
    pair, containers = info.get("keyPair"), info.get("containers")
    key = str(pair.get("privateKeyFileName") or "") if isinstance(pair, dict) else ""
    link = str(pair.get("privateKeyDirectDownloadLink") or "") if isinstance(pair, dict) else ""
    identity = f"-i {key} " if key else ""
    lines = [
        f"ssh {identity}-p {c.get('sshPort')} root@{c.get('sshIp')}"
        for c in (containers if isinstance(containers, list) else [])
        if isinstance(c, dict)
    ]
    return "\n".join([*lines, *([f"Download the key {key} from {link}"] if link else [])])


def _detail(job: JobStatus, reason: str, folders: list[str], array: TaskArray | None) -> str:
    colours = palette(sys.stdout)
    failed = sum(task.state == "FAILED" for task in job.tasks) if job.state == "SUCCEEDED" else 0
    failures = f" ({failed} of {len(job.tasks)} tasks failed)" if failed else ""
    lines = [
        f"{job.name}  {colours.state(job.state)}{failures}" + (f"  {reason}" if reason else ""),
        f"  user       {job.user}",
        f"  vc         {job.virtual_cluster}",
        f"  submitted  {format_time(job.submitted_ms)}",
        f"  started    {format_time(job.launched_ms)}",
        f"  ended      {format_time(job.completed_ms)}",
        f"  duration   {format_duration(job.launched_ms, job.completed_ms)}",
        f"  retries    {job.retries}",
    ]
    lines += [f"  {key:<10} {printable(value)}" for key, value in failure_details(job).items()]
    if job.tags:
        lines.append(f"  tags       {', '.join(job.tags)}")
    lines += [f"  files      {display_path(folder)}" for folder in folders[:MAX_FOLDERS]]
    if len(folders) > MAX_FOLDERS:
        lines.append(f"             and {len(folders) - MAX_FOLDERS} more folders")
    if job.tasks:
        rows = [
            [
                f"{task.role}[{task.index}]",
                task.state,
                "-" if task.own_exit_code is None else str(task.own_exit_code),
                format_duration(task.launched_ms, task.completed_ms),
                task.ip or "-",
                " ".join(f"{label}={ports}" for label, ports in task.ports.items()) or "-",
                *([printable(array.label(task.index))] if array else []),
            ]
            for task in job.tasks
        ]
        lines += [
            "",
            table(
                ["TASK", "STATE", "EXIT", "DURATION", "ADDRESS", "PORTS", *(["VALUES"] if array else [])],
                rows,
                right=frozenset({2, 3}),
                paint=lambda i, cell: colours.state(cell) if i == 1 else cell,
            ),
        ]
    return "\n".join(lines)
