"""``pai stop-job`` and ``pai delete-job``: stop or delete jobs."""

from __future__ import annotations

from openpaisdk.cli.jobs.job_selection import (
    FINISHED,
    UNFINISHED,
    add_selection_options,
    confirm,
    is_pattern,
    job_argument,
    resolve_jobs,
)
from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice, show
from paiprotocol.errors import RUNNING_JOB, Conflict, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def stop_job(argv: list[str]) -> int:
    """``pai stop-job [options] job ...``"""
    parser = command_parser(
        "stop-job",
        "pai stop-job train_k3v9xq\npai stop-jobs first 'sweep_*'\npai stop-job --all",
        "The programs get SIGTERM, and are killed after a grace period.",
    )
    add_selection_options(parser, "all your unfinished jobs")
    args = parser.parse(argv)
    _check_arguments(args.jobs, args.all, "stop-job")
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    names = resolve_jobs(cluster, args.jobs, args.user, UNFINISHED, args.all)
    if args.all and names and not confirm(f"Stop {_format_names(names)}?", args.yes):
        return 1
    finished: dict[str, str] = {}

    def stop(name: str) -> bool:
        job = cluster.job(name, args.user)
        if job.is_finished:
            finished[name] = job.state
            return False
        cluster.stop(name, args.user)
        return True

    stopped, failed = _for_each_job(names, stop)
    show({"stopped": stopped}, args.output, lambda: "\n".join(f"Stopping {name}" for name in stopped))
    if not names and args.output == "table":
        print_notice("There are no jobs to stop.")
    for name, state in finished.items():
        print_notice(f"{name} has already finished ({state}).")
    return _report_failures(failed)


def delete_jobs(argv: list[str]) -> int:
    """``pai delete-job [options] job ...``"""
    parser = command_parser(
        "delete-job",
        "pai delete-job train_k3v9xq\npai delete-job --yes 'sweep_*'",
        "Deletes the jobs with their logs and records, and calls and results of Python functions; their\n"
        "names can be used again. A job that has not finished must be stopped first.",
    )
    add_selection_options(parser, "all your finished jobs")
    args = parser.parse(argv)
    _check_arguments(args.jobs, args.all, "delete-job")
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    names = resolve_jobs(cluster, args.jobs, args.user, FINISHED, args.all)
    asks = args.all or any(is_pattern(name) for name in args.jobs)
    if asks and names and not confirm(f"Delete {_format_names(names)}, with their logs?", args.yes):
        return 1

    from openpaisdk.jobs.deletion import delete_job

    def delete(name: str) -> bool:
        try:
            delete_job(cluster, name, args.user)
        except Conflict as e:
            if e.code != RUNNING_JOB:
                raise
            job = job_argument(cluster, name, args.user)
            raise Conflict(
                f"{name} has not finished, so it cannot be deleted.",
                code=e.code,
                hint=f"Stop it first: pai stop-job {job} && pai wait {job}",
            ) from None
        return True

    deleted, failed = _for_each_job(names, delete)
    show({"deleted": deleted}, args.output, lambda: "\n".join(f"Deleted {name}" for name in deleted))
    if not names and args.output == "table":
        print_notice("There are no jobs to delete.")
    return _report_failures(failed)


def _check_arguments(names: list[str], select_all: bool, command: str) -> None:
    if select_all and names:
        raise UsageError("--all selects all jobs: do not give names.")
    if not select_all and not names:
        raise UsageError(f"pai {command} needs the name of a job.", hint="pai list-jobs lists your jobs.")


def _format_names(names: list[str]) -> str:
    few = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} jobs ({few})" if len(names) > 1 else names[0]


def _for_each_job(names: list[str], act: Callable[[str], bool]) -> tuple[list[str], list[PaiError]]:
    """Call ``act`` for each job; a failure does not stop the others."""
    done: list[str] = []
    failed: list[PaiError] = []
    for name in names:
        try:
            if act(name):
                done.append(name)
        except PaiError as e:
            failed.append(e)
    return done, failed


def _report_failures(failed: list[PaiError]) -> int:
    for other in failed[:-1]:
        print_notice(f"pai: {other.message}")
    if failed:
        raise failed[-1]
    return 0
