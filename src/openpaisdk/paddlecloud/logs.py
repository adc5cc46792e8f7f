"""``paddlecloud logs``: the last lines of a job's log."""

from __future__ import annotations

import sys

from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import log_output
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand, at_least
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudJob

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
    details="Without a job: the one that you submitted last with paddlecloud, also if it is pending; if you\n"
    "submitted none, your newest job.",
)


def logs(argv: list[str]) -> int:
    """``paddlecloud logs [-n lines] [-w worker] [job]``"""
    args = LOGS.parse(argv)
    client = open_datacenter(args.text("datacenter"), print_notice)
    named = args.positional[0] if args.positional else ""
    newest = None if named else _newest_job(client.jobs())
    job = named if newest is None else newest.name
    text = client.logs(job, args.number("n"), args.text("w"))
    if not text:
        is_pending = newest is not None and newest.is_pending
        state = "is pending: it has no log yet" if is_pending else "has no log yet"
        print_notice(f"Job {job} {state}. See why: paddlecloud get workers {job}")
    out = log_output(sys.stdout)
    sys.stdout.flush()
    out.write(text.encode("utf-8", "surrogateescape"))
    if text and not text.endswith("\n"):
        out.write(b"\n")
    out.flush()
    return 0


def _newest_job(jobs: list[PaddleCloudJob]) -> PaddleCloudJob:
    """The job that was submitted last with PaddleCloud; without one, the newest of any kind.

    Also one that is pending: the log of an older job would be taken for that of the last submission.
    """
    if not jobs:
        raise PaiError(
            "You have no jobs, so there is no log.",
            hint="Submit one: paddlecloud submit -entry 'python train.py' FOLDER",
        )
    own = [job for job in jobs if job.is_paddle] or jobs
    # Times are whole seconds, and of jobs of one second the first in the list is the newest.
    return max(own, key=lambda job: job.created)
