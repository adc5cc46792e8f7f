"""``paddlecloud logs``: the last lines of a job's log."""

from __future__ import annotations

import sys

from openpaisdk.errors import PaiError
from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import log_output
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand, at_least

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient

DEFAULT_LINES = 10

LOGS = FlagCommand(
    "logs",
    "[job]",
    "print the logs of a job",
    "paddlecloud logs\npaddlecloud logs -n 100 paddle-job-x63f",
    Flag(
        "n",
        f"how many lines of each worker, from the end (default: {DEFAULT_LINES})",
        "LINES",
        default=DEFAULT_LINES,
        read=at_least(1),
    ),
    Flag("w", "only this worker, as get workers names it", "WORKER"),
    count=(0, 1),
    details="Without a job: the job that runs, or else the one that was submitted last.",
)


def logs(argv: list[str]) -> int:
    """``paddlecloud logs [-n lines] [-w worker] [job]``"""
    args = LOGS.parse(argv)
    client = open_datacenter(args.text("datacenter"), print_notice)
    job = args.positional[0] if args.positional else _newest_job(client)
    text = client.logs(job, args.number("n"), args.text("w"))
    if not text:
        print_notice(f"Job {job} has no log yet. See why: paddlecloud get workers {job}")
    out = log_output(sys.stdout)
    sys.stdout.flush()
    out.write(text.encode("utf-8", "surrogateescape"))
    if text and not text.endswith("\n"):
        out.write(b"\n")
    out.flush()
    return 0


def _newest_job(client: PaddleCloudClient) -> str:
    jobs = client.jobs()
    if not jobs:
        raise PaiError(
            "You have no jobs, so there is no log.",
            hint="Submit one: paddlecloud submit -entry 'python train.py' FOLDER",
        )
    # One that waits has no log, and may wait for ever.
    candidates = [job for job in jobs if job.is_running] or [job for job in jobs if job.started] or jobs
    return max(candidates, key=lambda job: job.started or job.created or "9").name
