"""``pai resubmit``: submit a copy of a job, with changes, or a notebook as it is now."""

from __future__ import annotations

import os
from argparse import SUPPRESS

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.cli.submission.job_flags import add_job_options, given_options
from openpaisdk.cli.submission.submission_steps import preview, print_preflight, submit_and_follow
from openpaisdk.cli.submission.submit import add_update_option
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.job_options import JOB_OPTIONS
from openpaisdk.output import print_notice, show
from paiprotocol.errors import NO_SOURCES, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.copy_changes import CopyChanges
    from openpaisdk.jobs.sources import SourceArchive

NOTEBOOK_SUFFIX = ".ipynb"
_OF_NEW_JOBS = [option for option in JOB_OPTIONS if not option.for_copies]
_APART = ("virtual_cluster", "secrets", "sources")
"""Options that `clone_job` and the upload of the files take care of."""


def resubmit(argv: list[str]) -> int:
    """``pai resubmit [options] job|notebook [-- command ...]``"""
    parser = command_parser(
        "resubmit",
        "pai resubmit train_k3v9xq --gpu 8 -i pytorch/pytorch --follow\n"
        "pai resubmit train_k3v9xq --timeout 2h -- python train.py --epochs 90\n"
        "pai resubmit train_k3v9xq --role worker --instances 4\n"
        "pai resubmit train_k3v9xq -u taskRoles:main:resourcePerInstance:gpu=4\n"
        "pai resubmit train_k3v9xq -j second_try --deployment prod\n"
        "pai resubmit --failed sweep_k3v9xq --mem 8g\n"
        "pai resubmit train.ipynb --gpu 8 -i pytorch/pytorch",
        "The copy has the job's files, its commands and everything else that no option changes; -- and a\n"
        "command after it replace the commands. In a job with several task roles, --role says which of\n"
        "them the options change. In a task of a job, pai resubmit uses the job's own token.\n\n"
        "With --failed the copy runs only the tasks of an array that did not succeed, with their values.\n"
        "$PAI_TASK_INDEX is the index that they had.\n\n"
        "A notebook, as its file is now, becomes a job, with the options of pai notebook-job. Without\n"
        "--wait or --follow the command does not wait for it.\n\n"
        "Clusters do not return secrets: give the secrets of the job again with --secret.",
    )
    parser.usage = "pai resubmit [options] JOB|NOTEBOOK [-- command ...]"
    _add_options(parser)
    arguments, command = _split_command(argv)
    args = parser.parse(arguments)
    if args.job.endswith(NOTEBOOK_SUFFIX):
        return _resubmit_notebook(argv, args, command)
    if args.parameter:
        raise UsageError(
            "-p sets a parameter of a notebook, and this is a job.", hint="--env sets a variable."
        )
    given = given_options(args)
    if any(option.keyword in given for option in _OF_NEW_JOBS):
        raise UsageError(
            "A copy cannot be made an array, or have other values than the array of its job.",
            hint="Submit the command again with pai sub --array.",
        )
    if args.now and not args.failed:
        raise UsageError(
            "--now belongs to --failed, and there is no --failed.", hint="pai resubmit --failed JOB"
        )
    from openpaisdk.jobs.call_copy import CopiedJob
    from openpaisdk.jobs.clone import clone_job
    from openpaisdk.jobs.variables import parse_variables

    given["env"], secrets = parse_variables(args.env, args.secrets)
    changes = _changes(given, args, command)
    registry = ClusterRegistry.load()
    entry = registry.resolve(args.cluster_alias)
    cluster = open_cluster(args.cluster_alias, registry=registry, notify=print_notice)
    sources = _sources(args, changes, cluster)
    changes.check(entry)
    config = cluster.job_config(args.job, args.user)
    if args.failed:
        changes.tasks = _failed_tasks(cluster, config, args, changes)
        if not changes.tasks:
            show({"jobName": None, "cluster": cluster.alias, "user": cluster.user}, args.output, str)
            return 0
    job = clone_job(
        config,
        name=args.job_name or "",
        updates=args.update,
        deployment=args.deployment,
        virtual_cluster=args.virtual_cluster or "",
        secrets=secrets,
        changes=changes,
        user=cluster.user,
        notify=print_notice,
    )
    function = CopiedJob.of(
        config,
        job,
        job=args.job,
        owner=cluster.whole_name(args.job, args.user).partition("~")[0],
        user=cluster.user,
        image=args.image or "",
    )
    job = function.data if function else job
    if args.preview:
        return preview(job, args.output, cluster.user)
    warned = print_preflight(entry, cluster, job, args)
    if sources is not None:
        from openpaisdk.cli.submission.command_job import send_sources

        send_sources(cluster, sources)
    if function is not None:
        function.send_calls(cluster)
    return _submit(cluster, job, args, warned)


def _add_options(parser: Parser) -> None:
    add_job_options(parser, "JOB_$", opens_page=True, of_copy=True)
    for option in _OF_NEW_JOBS:  # the values of an array are part of its job's commands
        parser.options[option.flags[0]].help = SUPPRESS
    add_update_option(parser)
    parser.add_argument(
        "--failed",
        action="store_true",
        help="run only the tasks of an array that did not succeed (default: all tasks)",
    )
    parser.add_argument(
        "--now",
        action="store_true",
        help="with --failed, of a job that has not finished: the tasks that have failed until now (default: "
        "it must have finished)",
    )
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        metavar="ROLE",
        help="a task role that the options change (default: the only one of the job); may be repeated",
    )
    parser.add_argument(
        "--deployment", default="", metavar="NAME", help="the deployment to use (default: the job's own)"
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the notebook, as in pai notebook-job (default: none); may be repeated",
    )
    parser.add_argument("job", metavar="JOB|NOTEBOOK", help="the name of the job to copy, or an .ipynb file")


def _resubmit_notebook(argv: list[str], args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the notebook, as its file is now, as a job; without ``--wait`` its result stays on the cluster."""
    of_jobs = {
        "-u": args.update,
        "--failed": args.failed,
        "--role": args.role,
        "--deployment": args.deployment,
        "--user": args.user,
        "-- COMMAND": command,
    }
    if wrong := [option for option, value in of_jobs.items() if value]:
        raise UsageError(f"{wrong[0]} changes the copy of a job, and {args.job} is a notebook.")
    if _is_running_here(args.job):
        print_notice(
            f"{args.job} runs as the batch job {os.environ.get('PAI_JOB_NAME', '').rpartition('~')[2]}: "
            "nothing is submitted."
        )
        return 0
    from openpaisdk.cli.submission.notebook_job import notebook_job

    is_awaited = args.wait or args.follow or args.fetch is not None or args.preview
    return notebook_job(argv if is_awaited else ["--no-wait", *argv])


def _is_running_here(notebook: str) -> bool:
    """Whether this command runs in a batch job of this very notebook: each job would submit another one."""
    running = os.environ.get("PAI_NOTEBOOK", "")
    return bool(running) and os.path.realpath(running) == os.path.realpath(notebook)


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before ``--``, and the command after it."""
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    if not arguments[at + 1 :]:
        raise UsageError("There is no command after --.", hint="Without --, the copy has the job's commands.")
    return arguments[:at], arguments[at + 1 :]


def _changes(given: dict[str, Any], args: argparse.Namespace, command: Sequence[str]) -> CopyChanges:
    from openpaisdk.jobs.command import shell_line
    from openpaisdk.jobs.copy_changes import CopyChanges

    options = {keyword: value for keyword, value in given.items() if keyword not in _APART}
    return CopyChanges(commands=[shell_line(command)] if command else (), roles=args.role, **options)


def _sources(args: argparse.Namespace, changes: CopyChanges, cluster: ClusterClient) -> SourceArchive | None:
    """The files of ``--sources``, which the copy has instead of the job's."""
    if args.no_sources:
        changes.sources = {}
    if not args.sources:
        return None
    from openpaisdk.jobs.command_submission import current_folder
    from openpaisdk.jobs.sources import collect

    archive = collect(current_folder(), args.sources, connect=lambda: cluster)
    changes.sources = {"sha256": archive.sha256, "size": archive.size} if archive else {}
    return archive


def _failed_tasks(
    cluster: ClusterClient, config: str, args: argparse.Namespace, changes: CopyChanges
) -> list[int]:
    """The tasks that the copy runs; none if all have succeeded, which a notice says then."""
    from openpaisdk.client.job_config import parse_config
    from openpaisdk.jobs.failed_tasks import check_files, failed_tasks

    if args.instances is not None or args.role:
        raise UsageError("--failed says which tasks run: leave --instances and --role out.")
    data, job = parse_config(config), cluster.job(args.job, args.user)
    tasks = failed_tasks(data, job, now=args.now)
    count = len(job.tasks)
    if not tasks:
        what = "succeeded" if job.is_finished else "have succeeded, are running or are waiting"
        print_notice(f"Nothing to repeat: all {count} tasks of {job.name} {what}.")
        return []
    if changes.sources is None:
        check_files(cluster, data, job)
    print_notice(f"{len(tasks)} of the {count or len(tasks)} tasks of {job.name} run again.")
    return tasks


def _submit(
    cluster: ClusterClient, job: dict[str, object], args: argparse.Namespace, warned: list[str]
) -> int:
    try:
        return submit_and_follow(cluster, job, args, None, warned)
    except NotFound as e:
        owner = cluster.whole_name(args.job, args.user).partition("~")[0]
        if e.code != NO_SOURCES or owner == cluster.user:
            raise
        raise NotFound(
            f"The sources of job {args.job} belong to {owner}: a copy cannot use them.",
            code=e.code,
            hint=f"Ask {owner} for the files, and submit them with pai sub.",
        ) from None
