"""``paddlecloud kill``: stop a job."""

from __future__ import annotations

from openpaisdk.output import print_notice
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand

KILL = FlagCommand(
    "kill",
    "<job name>",
    "stop a job",
    "paddlecloud kill paddle-job-x63f\npaddlecloud kill -rm paddle-job-x63f",
    Flag("rm", "also remove the job from the history"),
    count=(1, 1),
    details="""\
The job stays in the history (get -a jobs) unless -rm is given, which also frees its name and deletes its
folder in job-packages. What it wrote stays in the folder of its package in any case.""",
)


def kill(argv: list[str]) -> int:
    """``paddlecloud kill [-rm] <job name>``"""
    args = KILL.parse(argv)
    open_datacenter(args.text("datacenter"), print_notice).kill(args.positional[0], remove=args.is_set("rm"))
    return 0
