"""``paddlecloud get`` and ``paddlecloud jobs``: lists of jobs and workers, the quota, image registries."""

from __future__ import annotations

import sys
import time
from datetime import UTC

from openpaisdk.output import print_notice, table
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient

_ALL = Flag("a", "list all jobs, not only those that have not finished")
_UNKNOWN = "-"

GET = FlagCommand(
    "get",
    "jobs | workers [job] | quota | registry",
    "print resources",
    "paddlecloud get jobs\npaddlecloud get -a jobs\npaddlecloud get workers paddle-job-x63f\n"
    "paddlecloud get quota",
    _ALL,
    count=(1, 2),
    details="""\
jobs      the jobs that have not finished; with -a all of them
workers   the trainers and parameter servers of a job, or of all jobs
quota     how much of each resource you use, and how much you may use
registry  the image registries whose logins are stored""",
)
JOBS = FlagCommand(
    "jobs", "", "list jobs; the same as get jobs", "paddlecloud jobs\npaddlecloud jobs -a", _ALL
)


def get(argv: list[str]) -> int:
    """``paddlecloud get [-a] <resource>``"""
    args = GET.parse(argv)
    resource, *names = args.positional
    show = _RESOURCES.get(resource)
    if show is None:
        raise GET.error(f"there is no resource {resource!r}; there are {', '.join(_RESOURCES)}")
    if names and resource != "workers":
        raise GET.error(f"unexpected argument {names[0]!r}")
    show(open_datacenter(args.text("datacenter"), print_notice), args.is_set("a"), "".join(names))
    return 0


def jobs(argv: list[str]) -> int:
    """``paddlecloud jobs [-a]``"""
    args = JOBS.parse(argv)
    _show_jobs(open_datacenter(args.text("datacenter"), print_notice), args.is_set("a"), "")
    return 0


def _show_jobs(client: PaddleCloudClient, is_all: bool, _: str) -> None:
    now = time.time()
    _print_table(
        ("NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"),
        [
            (
                job.namespace,
                job.name,
                _shown(job.desired),
                str(job.succeeded or 0),
                _age(job.started or job.created, now),
            )
            for job in client.jobs()
            if is_all or not job.is_finished
        ],
    )


def _show_workers(client: PaddleCloudClient, _: bool, job: str) -> None:
    rows = [
        (
            worker.name,
            worker.phase,
            worker.started or _UNKNOWN,
            _shown(worker.exit_code),
            worker.message or _UNKNOWN,
        )
        for worker in client.workers(job)
    ]
    _print_table(("NAME", "STATUS", "START", "EXIT_CODE", "MSG"), rows)


def _show_quota(client: PaddleCloudClient, _: bool, __: str) -> None:
    rows = [(name, used or _UNKNOWN, limit or _UNKNOWN) for name, used, limit in client.quota()]
    _print_table(("RESOURCE", "USED", "LIMIT"), rows)


def _show_registries(client: PaddleCloudClient, _: bool, __: str) -> None:
    rows = [(str(at), name, created) for at, (name, created) in enumerate(client.registries())]
    _print_table(("ID", "NAME", "DATA"), rows)


_RESOURCES: dict[str, Callable[[PaddleCloudClient, bool, str], None]] = {
    "jobs": _show_jobs,
    "workers": _show_workers,
    "quota": _show_quota,
    "registry": _show_registries,
}


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    sys.stdout.write(table(headers, rows) + "\n")


def _shown(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


def _age(started: str, now: float) -> str:
    """The time since a point in time, in one unit: 15s, 3m, 2h, 5d."""
    from datetime import datetime

    try:
        start = datetime.fromisoformat(started)
    except ValueError:
        return _UNKNOWN
    if start.tzinfo is None:
        start = start.replace(tzinfo=UTC)
    seconds = max(0, int(now - start.timestamp()))
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
