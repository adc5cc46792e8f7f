"""``pai stop-job`` and ``pai delete-job``: jobs are told to end, or to go."""

from __future__ import annotations

from openpaisdk.cli.job_selection import (
    OVER,
    UNFINISHED,
    confirm,
    is_pattern,
    resolve_jobs,
    selection_options,
)
from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def stop_job(argv: list[str]) -> int:
    """``pai stop-job [options] job ...``"""
    parser = command_parser(
        "stop-job",
        "pai stop-job train_k3v9xq\npai stop-jobs first 'sweep_*'\npai stop-job --all",
        "The programs get SIGTERM and some time to end, then they are killed.",
    )
    selection_options(parser, "every job of yours that is not over")
    args = parser.parse(argv)
    _some(args.jobs, args.all, "stop-job")
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    wanted = resolve_jobs(cluster, args.jobs, args.user, UNFINISHED, args.all)
    if args.all and wanted and not confirm(f"Stop {_jobs(wanted)}?", args.yes):
        return 1
    over: dict[str, str] = {}

    def stop(name: str) -> bool:
        job = cluster.job(name, args.user)
        if job.is_finished:
            over[name] = job.state
            return False
        cluster.stop(name, args.user)
        return True

    stopped, failed = _for_each_job(wanted, stop)
    show({"stopped": stopped}, args.output, lambda: "\n".join(f"Stopping {name}" for name in stopped))
    if not wanted and args.output == "table":
        print_notice("No job is left to stop.")
    for name, state in over.items():
        print_notice(f"{name} is over already ({state}).")
    return _failures(failed)


def delete_job(argv: list[str]) -> int:
    """``pai delete-job [options] job ...``"""
    parser = command_parser(
        "delete-job",
        "pai delete-job train_k3v9xq\npai delete-job --yes 'sweep_*'",
        "Its logs and its record go with it, and its name is free again. A job that is not over must be\n"
        "stopped first.",
    )
    selection_options(parser, "every job of yours that is over")
    args = parser.parse(argv)
    _some(args.jobs, args.all, "delete-job")
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    wanted = resolve_jobs(cluster, args.jobs, args.user, OVER, args.all)
    careful = args.all or any(is_pattern(name) for name in args.jobs)
    if careful and wanted and not confirm(f"Delete {_jobs(wanted)}, with their logs?", args.yes):
        return 1

    def delete(name: str) -> bool:
        cluster.delete(name, args.user)
        return True

    deleted, failed = _for_each_job(wanted, delete)
    show({"deleted": deleted}, args.output, lambda: "\n".join(f"Deleted {name}" for name in deleted))
    if not wanted and args.output == "table":
        print_notice("No job is left to delete.")
    return _failures(failed)


def _some(names: list[str], everything: bool, command: str) -> None:
    if everything and names:
        raise UsageError("--all means every job: leave the names out.")
    if not everything and not names:
        raise UsageError(f"pai {command} needs the name of a job.", hint="pai list-jobs shows yours.")


def _jobs(names: list[str]) -> str:
    few = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} jobs ({few})" if len(names) > 1 else names[0]


def _for_each_job(names: list[str], act: Callable[[str], bool]) -> tuple[list[str], list[PaiError]]:
    """Do it to each; one that fails keeps no other from it."""
    done: list[str] = []
    failed: list[PaiError] = []
    for name in names:
        try:
            if act(name):
                done.append(name)
        except PaiError as e:
            failed.append(e)
    return done, failed


def _failures(failed: list[PaiError]) -> int:
    for other in failed[:-1]:
        print_notice(f"pai: {other.message}")
    if failed:
        raise failed[-1]
    return 0
