"""``pai start-container``: start a job that stays alive, and connect with it by SSH."""

from __future__ import annotations

import time

from openpaisdk.cli.command_job import CommandJob, submit_command_job
from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.cli.ssh_container import connect_by_ssh
from openpaisdk.config.clusters import ClusterRegistry, alias_option
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.command_job import CLUSTER_RESOURCES, EMBEDDED_RESOURCES, JobOptions
from openpaisdk.jobs.job_names import expand_name
from openpaisdk.jobs.option_values import seconds
from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

_DEFAULT_TIMEOUT = "1d"
# How long a container may take to start; then the command for a later connection is printed.
_START_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.2


def start_container(argv: list[str]) -> int:
    """``pai start-container [options]``"""
    here, there = EMBEDDED_RESOURCES, CLUSTER_RESOURCES
    parser = command_parser(
        "start-container",
        "pai start-container -a lab -j dev --timeout 1d -i pytorch/pytorch\npai start-container --gpu 1",
        "Submits a job that sleeps for the given time, waits until it runs, writes its private key "
        "to the current folder, prints the ssh command that uses it, and runs it if there is a terminal. "
        "Stop the job with pai stop-job when you no longer need it.",
        output=False,
    )
    add = parser.add_argument
    add(
        "-j",
        "--job-name",
        default="container_$",
        metavar="NAME",
        help="the job's name; $ becomes a unique suffix (default: container_$)",
    )
    add("-i", "--image", default="", help="the container image (default: that of pai sub)")
    add(
        "--timeout",
        default=_DEFAULT_TIMEOUT,
        metavar="TIME",
        help=f"how long the container lives, like 90s, 2h (default: {_DEFAULT_TIMEOUT})",
    )
    add("--cpu", type=int_at_least(1), metavar="N", help=f"cores (default: {here.cpu}, else {there.cpu})")
    add("--gpu", type=int_at_least(0), metavar="N", help=f"GPUs (default: {there.gpu})")
    add(
        "--memoryMB",
        type=int_at_least(1),
        metavar="N",
        help=f"memory in MB (default: {here.memory_mb} on the embedded cluster, else {there.memory_mb})",
    )
    add(
        "--vc",
        "--virtual-cluster",
        dest="virtual_cluster",
        default="",
        metavar="VC",
        help='the virtual cluster (default: that of pai set, or "default")',
    )
    add("--preview", action="store_true", help="print the job instead of submitting it")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    options = JobOptions(
        expand_name(args.job_name),
        [f"sleep {seconds(args.timeout)}"],
        image=args.image,
        cpu=args.cpu,
        gpu=args.gpu,
        memory_mb=args.memoryMB,
        virtual_cluster=args.virtual_cluster,
        env={"PAI_INTERACTIVE": "1"},  # openpaisdk.runtime.where() reads it
    )
    # What the submission of every job reads.
    args.output, args.follow, args.wait, args.fetch, args.strict = "table", False, False, None, False
    status = submit_command_job(CommandJob(options, [], [], has_name=True), args, registry)
    if status or args.preview:
        return status
    cluster = open_cluster(args.cluster_alias, registry=registry, notify=print_notice)
    if not _wait_for_start(cluster, options.name):
        from openpaisdk.cli.pending_reason import pending_reason

        print_notice(
            f"Job {options.name} is still WAITING. {pending_reason(cluster, cluster.job(options.name))}"
        )
        connect = f"pai ssh-container {alias_option(cluster.alias)}-j {options.name}"
        print_notice(f"Connect later with: {connect}")
        return 0
    return connect_by_ssh(cluster, options.name)


def _wait_for_start(cluster: ClusterClient, name: str) -> bool:
    """Whether the job's task runs, or has ended, in time."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while (job := cluster.job(name)).state in ("WAITING", "RUNNING"):
        if any(task.state == "RUNNING" for task in job.tasks):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True
