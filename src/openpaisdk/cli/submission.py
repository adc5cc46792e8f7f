"""A job is shown, or handed in and watched: what ``sub``, ``submit`` and ``clone-job`` have in common."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import Parser
from openpaisdk.config.clusters import option_for
from openpaisdk.jobs.submission import mask_secrets, submit_job
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient
    from openpaisdk.errors import PaiError


def add_submit_options(parser: Parser, *, vc: bool = True) -> None:
    """The options of every command that hands in a job."""
    parser.add_argument("-f", "--follow", action="store_true", help="print its log until it is over")
    parser.add_argument("--wait", action="store_true", help="wait until it is over")
    parser.add_argument(
        "--fetch",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="wait until it is over, then bring the files it kept to NAME_output, or to FOLDER (as "
        "--fetch=FOLDER); files that lie there are not overwritten",
    )
    if vc:
        parser.add_argument(
            "--vc",
            "--virtual-cluster",
            dest="virtual_cluster",
            default="",
            metavar="VC",
            help="the virtual cluster",
        )
    parser.add_argument("--preview", action="store_true", help="print what would be sent, and send nothing")
    parser.add_argument(
        "--no-browser", action="store_true", help="open no web page (pai opens none for a job anyway)"
    )


def preview(job: dict[str, object], form: str) -> int:
    """What would be sent, because it is what is sent; only secrets are masked."""
    shown = mask_secrets(job)

    def people() -> str:
        from openpaisdk.protocol import dump_yaml

        return dump_yaml(shown).rstrip()

    # Version 1 is JSON, for people too.
    show(shown, "json" if form == "table" and "protocolVersion" not in job else form, people)
    if shown != job:
        print_notice("The values of its secrets are not shown.")
    return 0


def submit_and_follow(
    cluster: ClusterClient, job: dict[str, object], args: argparse.Namespace, rename: Callable[[], str] | None
) -> int:
    """Submit; then follow, wait, or say how to."""
    name = submit_job(cluster, job, rename, print_notice)
    result: dict[str, object] = {"jobName": name, "cluster": cluster.alias, "user": cluster.user}
    for_programs = args.output != "table"
    status = 0
    if args.follow or args.wait or args.fetch is not None:
        from openpaisdk.cli.follow_output import (
            STATUSES,
            follow_to_end,
            report_outcome,
            say_which,
            wait_for_job,
        )
        from openpaisdk.client.follow_stream import FollowRequest

        print_notice(f"Job {name} on {cluster.alias}")
        wanted = FollowRequest(name)
        if args.follow:
            # The tasks of a job that was just taken do not exist yet, so the job itself is asked.
            roles = job.get("taskRoles")
            if isinstance(roles, dict) and roles:
                counts = [role.get("instances", 1) for role in roles.values() if isinstance(role, dict)]
                say_which(str(next(iter(roles))), sum(n for n in counts if isinstance(n, int)))
            status = follow_to_end(cluster, wanted, log=sys.stderr.buffer if for_programs else None)
        else:
            status = report_outcome(cluster, wanted, wait_for_job(cluster, name))
        result["state"] = next((state for state, code in STATUSES.items() if code == status), "UNKNOWN")
        left = None
        if args.fetch is not None:
            result["fetched"], left = _fetch(cluster, name, args.fetch or f"{name}_output")
        # A followed job's log has stdout for itself; for whoever only waits, the name is the result.
        if for_programs or not args.follow:
            show(result, args.output, lambda: name)
        if left is not None and not status:
            raise left
        if left is not None:  # that the job failed counts more
            print_notice(f"pai: {left.message}\n     {left.hint}")
        return status
    show(result, args.output, lambda: name)
    if not for_programs:
        where = option_for(cluster.alias)
        print_notice(f"Submitted to {cluster.alias}. Follow it with: pai logs {where}-f {name}")
    return status


def _fetch(cluster: ClusterClient, name: str, target: str) -> tuple[list[str], PaiError | None]:
    """Also of a job that failed: what it kept until then may say why. The error names what stayed there."""
    from openpaisdk.cli.job_outputs import fetch_outputs
    from openpaisdk.jobs.outputs import JobOutputs

    results = JobOutputs(cluster, name)
    brought, differing = fetch_outputs(results, target)
    left = results.conflict_error(target, differing) if differing else None
    where = "here" if target == "." else f"to {target}"
    print_notice(
        f"Brought {len(brought)} file{'' if len(brought) == 1 else 's'} {where}: {', '.join(brought[:5])}"
        + (", ..." if len(brought) > 5 else "")
        if brought
        else f"{name} has kept no files."
        if left is None
        else "Brought no file."
    )
    return brought, left
