"""``pai stop-job``: jobs are told to end."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.errors import PaiError
from openpaisdk.jobs.target import open_cluster
from openpaisdk.output import say, show


def stop_job(argv: list[str]) -> int:
    """``pai stop-job [options] job ...``"""
    parser = command_parser(
        "stop-job",
        "pai stop-job train_k3v9xq\npai stop-jobs first second third",
        "The programs get SIGTERM and some time to end, then they are killed.",
    )
    parser.add_argument("--user", default="", metavar="USER", help="whose jobs, if not yours")
    parser.add_argument("jobs", nargs="+", metavar="job", help="the jobs' names")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=say)
    stopped: list[str] = []
    over: dict[str, str] = {}
    failed: list[PaiError] = []
    for name in dict.fromkeys(args.jobs):
        try:
            job = cluster.job(name, args.user)
            if job.is_over:
                over[name] = job.state
                continue
            cluster.stop(name, args.user)
            stopped.append(name)
        except PaiError as e:
            failed.append(e)
    show({"stopped": stopped}, args.output, lambda: "\n".join(f"Stopping {name}" for name in stopped))
    for name, state in over.items():
        say(f"{name} is over already ({state}).")
    for other in failed[:-1]:
        say(f"pai: {other.message}")
    if failed:
        raise failed[-1]
    return 0
