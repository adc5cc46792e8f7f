"""``pai submit``: submit a job file."""

from __future__ import annotations

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.cli.submission.job_flags import add_flag
from openpaisdk.cli.submission.submission_steps import (
    add_follow_options,
    add_strict_option,
    preview,
    print_preflight,
    submit_and_follow,
)
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.job_options import SCHEDULING, JobOptions
from openpaisdk.output import print_notice
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def submit(argv: list[str]) -> int:
    """``pai submit [options] file``"""
    parser = command_parser(
        "submit",
        "pai submit --follow job.yaml\n"
        "pai submit --preview -u resources:gpu=2 short.yaml\n"
        "pai submit -u name=again_$ -u taskRoles:worker:commands:0='python train.py' job.yaml\n"
        "pai submit -u jobName=again_$ -u taskRoles:0:gpuNumber=2 old.json",
        "The file follows OpenPAI's job protocol, version 2 (YAML or JSON) or version 1 (JSON); - reads\n"
        "standard input. It is sent in its own version; for a cluster that no longer accepts version 1 it\n"
        "is converted to version 2, with a notice. --preview always prints version 2.\n\n"
        "A short file has the options of pai sub as keys, and is sent as version 2 together with the files\n"
        "of its folder, or only with its sources:\n\n"
        "  command: python train.py\n"
        "  image: pytorch/pytorch\n"
        "  resources: {gpu: 1, mem: 16g}\n"
        "  sources: [train.py]",
    )
    scheduling = parser.add_argument_group(SCHEDULING)
    default_vc = 'default: the one of the job file, or "default"'
    add_flag(scheduling, JobOptions.virtual_cluster, default_help=default_vc)
    add_strict_option(scheduling)
    add_follow_options(parser)
    add_update_option(parser)
    parser.add_argument("config", metavar="FILE", help="the job file")
    args = parser.parse(argv)
    from openpaisdk.jobs.command_job import with_caller_environment
    from openpaisdk.jobs.job_file import parse_job_file, read_contents
    from openpaisdk.jobs.short_job_file import is_short_text

    name, source = read_contents(args.config)
    if is_short_text(source, name):
        return _submit_short_job(args, name, source)
    job = parse_job_file(
        name, source, args.update, virtual_cluster=args.virtual_cluster or "", notify=print_notice
    )
    registry = ClusterRegistry.load()
    try:
        entry = registry.resolve(args.cluster_alias)
    except UsageError:
        if not args.preview or args.cluster_alias:
            raise
        return preview(job, args.output)  # without what a cluster on this machine would get
    job = with_caller_environment(job, entry)
    if args.preview:
        return preview(job, args.output, entry.text("user"))
    cluster = open_cluster(args.cluster_alias, registry=registry, notify=print_notice)
    warned = print_preflight(entry, cluster, job, args)
    return submit_and_follow(cluster, job, args, None, warned)


def _submit_short_job(args: argparse.Namespace, name: str, source: bytes) -> int:
    from openpaisdk.cli.submission.command_job import CommandJob, submit_command_job
    from openpaisdk.config.clusters import ClusterRegistry
    from openpaisdk.jobs.short_job_file import job_folder, read_short_job

    short = read_short_job(
        source,
        file=name,
        folder=job_folder(args.config),
        updates=args.update,
        virtual_cluster=args.virtual_cluster or "",
    )
    command = [" ".join(short.options.commands)]
    job = CommandJob(short.options, command, has_name=short.has_name, folder=short.folder)
    return submit_command_job(job, args, ClusterRegistry.load())


def add_update_option(parser: Parser) -> None:
    parser.add_argument(
        "-u",
        "--update",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value of the job file; : separates nested keys and list indexes, as in "
        "defaults:virtualCluster=test; the value is converted to the key's type; may be repeated",
    )
