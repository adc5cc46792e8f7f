"""``pai list-jobs`` and ``pai job-status``: jobs as they are now."""

from __future__ import annotations

import sys

from openpaisdk.cli.follow_output import causes, reason, task_folders
from openpaisdk.cli.parser import command_parser, whole_number
from openpaisdk.client.models import check_states, text
from openpaisdk.config.paths import display_path
from openpaisdk.connect import open_cluster
from openpaisdk.output import duration, moment, palette, print_notice, show, table
from openpaisdk.output.table import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, JobSummary

EVERYBODY = "__all__"
PAGE = 50
LONGEST_REASON = 60
MOST_FOLDERS = 4
JUST_CAME = "it has just come"
IN_LINE = "others came first"


def list_jobs(argv: list[str]) -> int:
    """``pai list-jobs [options] [job]``"""
    parser = command_parser(
        "list-jobs",
        "pai list-jobs --state RUNNING\npai list-jobs --user __all__ --since 2h -o json\n"
        "pai list-jobs --limit 20 --offset 20",
        "The newest come first.",
    )
    add = parser.add_argument
    add("--user", default="", metavar="USER", help=f"whose jobs; {EVERYBODY} for everybody's")
    add("--state", action="append", default=[], metavar="STATE", help="only these; may be repeated")
    add(
        "--vc", "--virtual-cluster", dest="virtual_cluster", default="", metavar="VC", help="only in this one"
    )
    add("--keyword", default="", metavar="TEXT", help="only jobs whose name holds this text")
    add("--tag", action="append", default=[], metavar="TAG", help="only jobs with this tag; may be repeated")
    add("--since", default="", metavar="TIME", help="only jobs handed in since: 2h, 3d, or 2026-11-15")
    add("--limit", type=whole_number(1), default=PAGE, metavar="N", help=f"how many ({PAGE})")
    add("--offset", type=whole_number(0), default=0, metavar="N", help="leave out the first N")
    add("--all", action="store_true", help="no limit")
    add("job", nargs="?", default="", help="show this job in full, as job-status does")
    args = parser.parse(argv)
    if args.job:
        who = [] if args.user in ("", EVERYBODY) else ["--user", args.user]
        return job_status(["-a", args.cluster_alias, "-o", args.output, *who, "--", args.job])
    for state in args.state:
        check_states(state)
    since = _since(args.since) if args.since else 0
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    found, more = _found(cluster, args, since)
    show([job.raw for job in found], args.output, lambda: _table(found, args.user == EVERYBODY))
    if args.output == "table":
        narrowed = args.state or args.keyword or args.offset or args.tag or args.since or args.virtual_cluster
        if not found and narrowed:
            print_notice("No jobs match.")
        elif not found:
            print_notice("No jobs. Run one with: pai sub -- echo hello")
        elif more:
            after = args.offset + len(found)
            print_notice(
                f"There may be more: --offset {after} goes on, --limit N shows more at once, --all shows all."
            )
    return 0


def _found(cluster: ClusterClient, args: argparse.Namespace, since: int) -> tuple[list[JobSummary], bool]:
    """The jobs asked for, and whether there may be more of them."""
    user = "" if args.user == EVERYBODY else args.user or cluster.user
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
        if (job.submitted_ms or 0) < since:  # the newest come first, so all that follow are older
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
    # Only where one waits, and on clusters that tell why.
    if told := any("reason" in job.raw for job in jobs):
        headers.append("WAITS BECAUSE")
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
            *([_short_reason(job)] if told else []),
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
    """Short enough for a line; job-status tells all of it."""
    if "reason" not in job.raw:
        return ""
    from openpaisdk.cli.pending_reason import is_recent

    why = job.reason or (JUST_CAME if is_recent(job.submitted_ms) else IN_LINE)
    return why if len(why) <= LONGEST_REASON else why[: LONGEST_REASON - 3].rstrip() + "..."


def job_status(argv: list[str]) -> int:
    """``pai job-status [options] job [config|ssh|events]``"""
    parser = command_parser(
        "job-status", "pai job-status train_k3v9xq\npai job-status train_k3v9xq config > again.yaml"
    )
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "query",
        nargs="?",
        choices=("config", "ssh", "events"),
        help="its configuration, how to reach it by ssh, or what the cluster said about it",
    )
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
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
    why = text(job.raw, "reason") or reason(job)
    if job.state == "WAITING" and not why:
        from openpaisdk.cli.pending_reason import pending_reason

        why = pending_reason(cluster, job)
    raw = {**job.raw, "reason": why} if job.state == "WAITING" else job.raw
    show(raw, args.output, lambda: _detail(job, why, task_folders(cluster, job)))
    return 0


def _ssh_lines(info: dict[str, object]) -> str:
    """A line to type for each container."""
    pair, containers = info.get("keyPair"), info.get("containers")
    key = str(pair.get("privateKeyFileName") or "") if isinstance(pair, dict) else ""
    link = str(pair.get("privateKeyDirectDownloadLink") or "") if isinstance(pair, dict) else ""
    identity = f"-i {key} " if key else ""
    lines = [
        f"ssh {identity}-p {c.get('sshPort')} root@{c.get('sshIp')}"
        for c in (containers if isinstance(containers, list) else [])
        if isinstance(c, dict)
    ]
    return "\n".join([*lines, *([f"The key {key} is at {link}"] if link else [])])


def _detail(job: JobStatus, why: str, files: list[str]) -> str:
    colours = palette(sys.stdout)
    failed = sum(task.state == "FAILED" for task in job.tasks) if job.state == "SUCCEEDED" else 0
    some = f" ({failed} of {len(job.tasks)} failed)" if failed else ""
    lines = [
        f"{job.name}  {colours.state(job.state)}{some}" + (f"  {why}" if why else ""),
        f"  user       {job.user}",
        f"  vc         {job.virtual_cluster}",
        f"  submitted  {moment(job.submitted_ms)}",
        f"  started    {moment(job.launched_ms)}",
        f"  ended      {moment(job.completed_ms)}",
        f"  duration   {duration(job.launched_ms, job.completed_ms)}",
        f"  retries    {job.retries}",
    ]
    lines += [f"  {key:<10} {printable(value)}" for key, value in causes(job).items()]
    if job.tags:
        lines.append(f"  tags       {', '.join(job.tags)}")
    lines += [f"  files      {display_path(folder)}" for folder in files[:MOST_FOLDERS]]
    if len(files) > MOST_FOLDERS:
        lines.append(f"             and {len(files) - MOST_FOLDERS} more folders beside these")
    if job.tasks:
        rows = [
            [
                f"{task.role}[{task.index}]",
                task.state,
                "-" if task.own_exit_code is None else str(task.own_exit_code),
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
