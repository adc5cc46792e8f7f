"""Why a job waits, in one sentence of the cluster's own."""

from __future__ import annotations

import time

from openpaisdk.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, JobSummary
    from openpaisdk.jobs.command_job import ResourceOptions

# The events that say why a job waits: as in `protocol.states`, which a command that only looks does not load.
REASONS = frozenset(
    {
        "FailedScheduling",
        "Scheduled",
        "Pulling",
        "SlurmNotAnswering",
        "Retrying",
        "Preempted",
        "FailedLaunch",
        "Degraded",
    }
)
JUST_CAME = "It was handed in a moment ago."
IN_LINE = "Jobs that came first wait for the same resources."

_A_MOMENT_MS = 3000


def is_recent(submitted_ms: int | None) -> bool:
    """Whether nobody need have looked at it yet: by this machine's clock, which will do for a remark."""
    return submitted_ms is not None and time.time() * 1000 - submitted_ms < _A_MOMENT_MS


def pending_reason(cluster: ClusterClient, job: JobStatus | JobSummary) -> str:
    """What the cluster said last about why the job waits; empty when the cluster tells nothing of jobs."""
    try:
        events = cluster.events(job.name, job.user)
    except PaiError:  # a cluster of a generation that keeps no events
        return ""
    in_line = JUST_CAME if is_recent(job.submitted_ms) else IN_LINE
    return next((e.message for e in events if e.reason in REASONS and e.message), in_line)


def exceeds_capacity(cluster: ClusterClient, wanted: ResourceOptions, count: int) -> str:
    """What the cluster has too little of for so many tasks at once, even when it is empty; or nothing."""
    from openpaisdk.client.models import CORES, GPUS, MEMORY

    try:
        shares = cluster.virtual_clusters()
    except PaiError:  # the job is in; what it waits for is told by others
        return ""
    kinds = (
        ("GPUs", GPUS, wanted.gpu),
        ("cores", CORES, wanted.cpu),
        ("MB of memory", MEMORY, wanted.memory_mb),
    )
    for kind, keys, each in kinds:
        totals = [share.total(*keys) for share in shares]
        known = [total for total in totals if total is not None]
        if known and len(known) == len(totals) and each * count > sum(known):
            return (
                f"The cluster {cluster.alias} has {sum(known)} {kind} in all, and the job asks for "
                f"{each * count}: it waits until that changes."
            )
    return ""


class PendingQueue:
    """The jobs that wait in a virtual cluster: how many, and why the first of them does."""

    __slots__ = ("count", "first", "reason")

    def __init__(self, count: int, first: str, reason: str):
        self.count = count
        self.first = first
        self.reason = reason

    def __str__(self) -> str:
        many = "1 job waits" if self.count == 1 else f"{self.count} jobs wait"
        return f"{many}; the first is {self.first}" + (f": {self.reason}" if self.reason else ".")


def waiting_lines(cluster: ClusterClient, virtual_clusters: list[str]) -> dict[str, PendingQueue]:
    """The lines in front of these virtual clusters, where there are any."""
    found = {}
    try:
        if not cluster.count_jobs(state="WAITING"):
            return {}
        for vc in virtual_clusters:
            count = cluster.count_jobs(state="WAITING", virtual_cluster=vc)
            first = cluster.jobs(state="WAITING", virtual_cluster=vc, limit=1, order="submissionTime,ASC")
            for job in first:
                reason = pending_reason(cluster, job)
                found[vc] = PendingQueue(max(count, 1), f"{job.user}~{job.name}", reason)
    except PaiError:  # it tells what is free, and that was asked for; who waits is more than it can say
        pass
    return found
