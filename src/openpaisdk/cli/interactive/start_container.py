"""``pai start-container``: start a job that stays alive, and connect with it by SSH."""

from __future__ import annotations

import time

from openpaisdk.cli.interactive.ssh_container import connect_by_ssh
from openpaisdk.cli.parser import command_parser
from openpaisdk.cli.submission.command_job import CommandJob, submit_command_job
from openpaisdk.cli.submission.job_flags import add_flag, given_options
from openpaisdk.config.clusters import ClusterRegistry, alias_option
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.job_names import expand_name
from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.option_values import seconds
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

_DEFAULT_NAME = "container_$"
_DEFAULT_LIFETIME = "1d"
# How long a container may take to start; then the command for a later connection is printed.
_START_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.2


def start_container(argv: list[str], *, start_timeout_s: float = _START_TIMEOUT_S) -> int:
    """``pai start-container [options]``"""
    parser = command_parser(
        "start-container",
        "pai start-container -a lab -j dev --timeout 1d -i pytorch/pytorch\npai start-container --gpu 1",
        "Submits a job that sleeps for the given time, waits until it runs, writes its private key "
        "to the current folder, prints the ssh command that uses it, and runs it if there is a terminal. "
        "Stop the job with pai stop-job when you no longer need it.",
        output=False,
    )
    add_flag(parser, JobOptions.name, default_help=f"default: {_DEFAULT_NAME}")
    add_flag(parser, JobOptions.image)
    parser.add_argument(
        "--timeout",
        dest="lifetime",
        default=_DEFAULT_LIFETIME,
        metavar="TIME",
        help=f"how long the container lives, like 90s, 2h (default: {_DEFAULT_LIFETIME})",
    )
    add_flag(parser, JobOptions.cpu, help="cores")
    add_flag(parser, JobOptions.gpu, help="GPUs")
    add_flag(parser, JobOptions.memory_mb, help="memory in MB")
    add_flag(parser, JobOptions.virtual_cluster)
    parser.add_argument("--preview", action="store_true", help="print the job instead of submitting it")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    given = {**given_options(args), "sources": [], "env": {"PAI_INTERACTIVE": "1"}}  # read by runtime.where()
    name = expand_name(args.job_name or _DEFAULT_NAME)
    options = JobOptions.read(name, [f"sleep {seconds(args.lifetime)}"], given)
    # What the submission of every job reads.
    args.output, args.follow, args.wait, args.fetch, args.strict = "table", False, False, None, False
    status = submit_command_job(CommandJob(options, [], has_name=True), args, registry)
    if status or args.preview:
        return status
    cluster = open_cluster(args.cluster_alias, registry=registry, notify=print_notice)
    if not _wait_for_start(cluster, options.name, start_timeout_s):
        from openpaisdk.cli.jobs.pending_reason import pending_reason

        print_notice(
            f"Job {options.name} is still WAITING. {pending_reason(cluster, cluster.job(options.name))}"
        )
        connect = f"pai ssh-container {alias_option(cluster.alias)}-j {options.name}"
        print_notice(f"Connect later with: {connect}")
        return 0
    return connect_by_ssh(cluster, options.name)


def _wait_for_start(cluster: ClusterClient, name: str, timeout_s: float) -> bool:
    """Wait for the job's task to run or to end; False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (job := cluster.job(name)).state in ("WAITING", "RUNNING"):
        if any(task.state == "RUNNING" for task in job.tasks):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True
