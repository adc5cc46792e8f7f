"""``pai submit`` and ``pai clone-job``: submit a job file, or a copy of an existing job."""

from __future__ import annotations

from openpaisdk.cli.parser import Parser, command_parser
from openpaisdk.cli.submission import add_submit_options, preview, submit_and_follow
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice


def submit(argv: list[str]) -> int:
    """``pai submit [options] file``"""
    parser = command_parser(
        "submit",
        "pai submit --follow job.yaml\n"
        "pai submit -u name=again_$ -u taskRoles:worker:commands:0='python train.py' job.yaml\n"
        "pai submit -u jobName=again_$ -u taskRoles:0:gpuNumber=2 old.json",
        "The file follows OpenPAI's job protocol, version 2 (YAML or JSON) or version 1 (JSON); - reads\n"
        "standard input. It is sent in its own version; for a cluster that no longer accepts version 1 it\n"
        "is converted to version 2, with a notice.",
    )
    add_submit_options(parser)
    _add_update_option(parser)
    parser.add_argument("config", metavar="FILE", help="the job file")
    args = parser.parse(argv)
    from openpaisdk.jobs.job_file import read_job_file

    job = read_job_file(args.config, args.update, virtual_cluster=args.virtual_cluster, notify=print_notice)
    if args.preview:
        return preview(job, args.output)
    return submit_and_follow(open_cluster(args.cluster_alias, notify=print_notice), job, args, None)


def clone_job(argv: list[str]) -> int:
    """``pai clone-job [options] job``"""
    parser = command_parser(
        "clone-job",
        "pai clone-job train_k3v9xq -u taskRoles:main:resourcePerInstance:gpu=4 --follow\n"
        "pai resubmit train_k3v9xq -j second_try --deployment prod",
        "Clusters do not return secrets: give the secrets of the job again with --secret.",
    )
    add_submit_options(parser)
    _add_update_option(parser)
    parser.add_argument(
        "-j",
        "--job-name",
        default="",
        metavar="NEW",
        help="the new job's name; $ becomes a unique suffix (default: JOB_$)",
    )
    parser.add_argument(
        "--deployment", default="", metavar="NAME", help="the deployment to use (default: the job's own)"
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a secret of the job; without a value, taken from your environment; may be repeated",
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the name of the job to copy")
    args = parser.parse(argv)
    from openpaisdk.jobs.clone import clone_job
    from openpaisdk.jobs.pre_commands import parse_variables

    _, secrets = parse_variables((), args.secret)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    job = clone_job(
        cluster.job_config(args.job, args.user),
        name=args.job_name,
        updates=args.update,
        deployment=args.deployment,
        virtual_cluster=args.virtual_cluster,
        secrets=secrets,
        notify=print_notice,
    )
    if args.preview:
        return preview(job, args.output)
    return submit_and_follow(cluster, job, args, None)


def _add_update_option(parser: Parser) -> None:
    parser.add_argument(
        "-u",
        "--update",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value of the job; : separates nested keys and list indexes, as in "
        "defaults:virtualCluster=test; the value is converted to the key's type; may be repeated",
    )
