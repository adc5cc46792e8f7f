"""Steps of a submission that `sub`, `submit` and `resubmit` share: preview, preflight, following."""

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
    from paiprotocol.errors import PaiError

    OnEnd = Callable[[ClusterClient, str, dict[str, object]], None]
    OnInterrupt = Callable[[ClusterClient, str], None]
    OnSubmit = Callable[[ClusterClient, str, dict[str, object]], int]


def add_strict_option(scheduling: argparse._ActionsContainer) -> None:
    scheduling.add_argument(
        "--strict",
        action="store_true",
        help="submit nothing if the job asks for more than its virtual cluster has (default: submit it and "
        "print a warning)",
    )


def add_follow_options(parser: Parser, *, opens_page: bool = False) -> None:
    """Add the options for what follows a submission, or replaces it."""
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
    follow.add_argument(
        "--preview", action="store_true", help="print the job, in version 2, instead of submitting it"
    )
    browser = (
        "open no web page" if opens_page else "accepted for compatibility; the command opens no web page"
    )
    follow.add_argument("--no-browser", action="store_true", help=browser)


def preview(job: dict[str, object], output_format: str, user: str = "") -> int:
    """Print exactly the job that would be sent, but version 1 as version 2; only secrets are masked.

    ``user``: who would submit it, for the paths of a version 1 job.
    """
    if "protocolVersion" not in job:
        job = _as_version_2(job, user)
    masked = mask_secrets(job)

    def render() -> str:
        from paiprotocol.jobs import dump_yaml

        return dump_yaml(masked).rstrip()

    show(masked, output_format, render)
    if masked != job:
        print_notice("The values of secrets are masked.")
    return 0


def _as_version_2(job: dict[str, object], user: str) -> dict[str, object]:
    """A version 1 job as a cluster converts it, with notices about what is lost."""
    from paiprotocol.jobs import convert_v1

    conversion = convert_v1(job, user=user)
    print_notice("This is the version 2 of the job, which clusters make of it; it is sent as version 1.")
    for warning in conversion.warnings:
        print_notice(str(warning))
    return conversion.data


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
    on_interrupt: OnInterrupt | None = None,
) -> int:
    """Submit the job; then follow it, wait for it, or print how to follow it.

    ``warned``: the warnings that `print_preflight` printed. ``on_end`` is called when a job that was
    followed or waited for has ended, with its name and with the result that is printed, to which it may add.
    ``on_submit`` does everything that follows the submission instead, and returns the exit status.
    ``on_interrupt`` is called if the user stops waiting.
    """
    name = submit_job(cluster, job, rename, print_notice, strict=args.strict, warned=warned)
    result: dict[str, object] = {"jobName": name, "cluster": cluster.alias, "user": cluster.user}
    if on_submit is not None:
        return on_submit(cluster, name, result)
    is_structured = args.output != "table"
    status = 0
    if args.follow or args.wait or args.fetch is not None:
        from openpaisdk.cli.jobs.follow_output import (
            STATUSES,
            report_outcome,
            wait_for_job,
        )
        from openpaisdk.client.follow_stream import FollowRequest

        print_notice(f"Job {name} on {cluster.alias}")
        # A task may have failed and been retried before following begins.
        request = FollowRequest(name, all_attempts=True)
        try:
            if args.follow:
                log = sys.stderr if is_structured else None
                status = _follow(cluster, request, job, log=log, already_shown=warned)
            else:
                state = wait_for_job(cluster, name, already_shown=warned)
                status = report_outcome(cluster, request, state, shown=())
        except KeyboardInterrupt:
            if on_interrupt is not None:
                on_interrupt(cluster, name)
            raise
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
    from openpaisdk.cli.jobs.follow_output import print_log, report_outcome
    from openpaisdk.cli.jobs.task_logs import limit_followed, print_task_logs, tasks_of_config

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
    from openpaisdk.cli.jobs.job_outputs import fetch_outputs
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
        print_notice(outputs.no_files() if error is None else "Downloaded no files.")
    return fetched, error
