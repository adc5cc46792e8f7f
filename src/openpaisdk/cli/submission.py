"""Submission of a job: options, preview and following, shared by ``sub``, ``submit`` and ``resubmit``."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import Parser
from openpaisdk.config.clusters import alias_option
from openpaisdk.jobs.submission import mask_secrets, submit_job
from openpaisdk.output import print_notice, show
from openpaisdk.output.untrusted_text import log_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.follow_stream import FollowRequest
    from openpaisdk.config.clusters import ClusterEntry
    from openpaisdk.errors import PaiError

    OnEnd = Callable[[ClusterClient, str, dict[str, object]], None]
    OnSubmit = Callable[[ClusterClient, str, dict[str, object]], int]


def add_submit_options(
    parser: Parser, default_vc: str = "the one of the job file, or", *, opens_page: bool = False
) -> argparse._ArgumentGroup:
    """Add the options of every command that submits a job; returns the group of scheduling options."""
    scheduling = parser.add_argument_group("Scheduling")
    scheduling.add_argument(
        "--vc",
        "--virtual-cluster",
        dest="virtual_cluster",
        default="",
        metavar="VC",
        help=f'the virtual cluster (default: {default_vc} "default")',
    )
    scheduling.add_argument(
        "--strict",
        action="store_true",
        help="submit nothing if the job asks for more than its virtual cluster has (default: submit it and "
        "print a warning)",
    )
    follow = parser.add_argument_group("Follow")
    follow.add_argument("-f", "--follow", action="store_true", help="print the job's log until it finishes")
    follow.add_argument("--wait", action="store_true", help="wait until the job finishes")
    follow.add_argument(
        "--fetch",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="wait until the job finishes, then download its output files to FOLDER (default: "
        "JOB_output); existing files are not overwritten",
    )
    follow.add_argument("--preview", action="store_true", help="print the job instead of submitting it")
    browser = (
        "open no web page" if opens_page else "accepted for compatibility; the command opens no web page"
    )
    follow.add_argument("--no-browser", action="store_true", help=browser)
    return scheduling


def preview(job: dict[str, object], output_format: str) -> int:
    """Print exactly the job that would be sent; only secrets are masked."""
    masked = mask_secrets(job)

    def render() -> str:
        from openpaisdk.protocol import dump_yaml

        return dump_yaml(masked).rstrip()

    # Version 1 jobs are always printed as JSON.
    is_v1 = "protocolVersion" not in job
    show(masked, "json" if output_format == "table" and is_v1 else output_format, render)
    if masked != job:
        print_notice("The values of secrets are masked.")
    return 0


def print_preflight(
    entry: ClusterEntry, cluster: ClusterClient, job: dict[str, object], args: argparse.Namespace
) -> list[str]:
    """Print, and return, what is known about a job before anything is sent."""
    from openpaisdk.jobs.preflight import preflight

    warnings = preflight(entry, cluster, job, strict=args.strict)
    for warning in warnings:
        print_notice(warning)
    return warnings


def submit_and_follow(
    cluster: ClusterClient,
    job: dict[str, object],
    args: argparse.Namespace,
    rename: Callable[[], str] | None,
    warned: list[str],
    on_end: OnEnd | None = None,
    on_submit: OnSubmit | None = None,
) -> int:
    """Submit the job; then follow it, wait for it, or print how to follow it.

    ``warned``: the warnings that `print_preflight` printed. ``on_end`` is called when a job that was
    followed or waited for has ended, with its name and with the result that is printed, to which it may add.
    ``on_submit`` does everything that follows the submission instead, and returns the exit status.
    """
    name = submit_job(cluster, job, rename, print_notice, strict=args.strict, warned=warned)
    result: dict[str, object] = {"jobName": name, "cluster": cluster.alias, "user": cluster.user}
    if on_submit is not None:
        return on_submit(cluster, name, result)
    is_structured = args.output != "table"
    status = 0
    if args.follow or args.wait or args.fetch is not None:
        from openpaisdk.cli.follow_output import (
            STATUSES,
            report_outcome,
            wait_for_job,
        )
        from openpaisdk.client.follow_stream import FollowRequest

        print_notice(f"Job {name} on {cluster.alias}")
        # A task may have failed and been retried before following begins.
        request = FollowRequest(name, all_attempts=True)
        if args.follow:
            log = sys.stderr if is_structured else None
            status = _follow(cluster, request, job, log=log, already_shown=warned)
        else:
            state = wait_for_job(cluster, name, already_shown=warned)
            status = report_outcome(cluster, request, state, shown=())
        result["state"] = next((state for state, code in STATUSES.items() if code == status), "UNKNOWN")
        error = None
        if args.fetch is not None:
            result["fetched"], error = _fetch(cluster, name, args.fetch or f"{name}_output")
        if on_end is not None:
            on_end(cluster, name, result)
        # With --follow stdout carries only the log; with --wait the name is the result.
        if is_structured or not args.follow:
            show(result, args.output, lambda: name)
        if error is not None and not status:
            raise error
        if error is not None:  # the job's own failure decides the exit status
            print_notice(f"pai: {error.message}\n     {error.hint}")
        return status
    show(result, args.output, lambda: name)
    if not is_structured:
        option = alias_option(cluster.alias)
        print_notice(f"Submitted to {cluster.alias}. Follow it with: pai logs {option}-f {name}")
    return status


def _follow(
    cluster: ClusterClient,
    request: FollowRequest,
    job: dict[str, object],
    *,
    log: TextIO | None,
    already_shown: Sequence[str],
) -> int:
    """Print the log of the job that was just submitted, then its outcome: ``--follow``."""
    from openpaisdk.cli.follow_output import print_log, report_outcome
    from openpaisdk.cli.task_logs import limit_followed, print_task_logs, tasks_of_config

    # The tasks do not exist on the cluster yet: read them from the job itself.
    tasks = tasks_of_config(job)
    if len(tasks) < 2:
        state = print_log(cluster, request, log=log_output(log) if log else None, already_shown=already_shown)
        return report_outcome(cluster, request, state)
    shown = limit_followed(list(tasks))
    state = print_task_logs(cluster, request, shown, in_parallel=True, out=log, already_shown=already_shown)
    return report_outcome(cluster, request, state, shown)


def _fetch(cluster: ClusterClient, name: str, target: str) -> tuple[list[str], PaiError | None]:
    """Download the outputs, also of a failed job: they may explain the failure.

    Returns the fetched names, and an error that names files which were not overwritten.
    """
    from openpaisdk.cli.job_outputs import fetch_outputs
    from openpaisdk.jobs.outputs import JobOutputs

    outputs = JobOutputs(cluster, name)
    fetched, differing = fetch_outputs(outputs, target)
    error = outputs.conflict_error(target, differing) if differing else None
    folder = "the current folder" if target == "." else target
    if fetched:
        count = f"{len(fetched)} file{'' if len(fetched) == 1 else 's'}"
        names = ", ".join(fetched[:5]) + (", ..." if len(fetched) > 5 else "")
        print_notice(f"Downloaded {count} to {folder}: {names}")
    else:
        print_notice(f"{name} has no output files." if error is None else "Downloaded no files.")
    return fetched, error
