"""Slurm's job states, as squeue prints them, and their meaning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paicluster.engines.interface import Loss, Notice
from paicluster.engines.slurm.sbatch_command import uid_of

# One line per job. The comment comes last: it may hold anything, even a newline.
_FORMAT = "%i|%T|%r|%N|%U|%M|%k"
_FIELDS = _FORMAT.count("|")

_PENDING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_FINISHED = frozenset(
    (
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "DEADLINE",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "BOOT_FAIL",
        "REVOKED",
    )
)
_LOSSES = {
    "NODE_FAIL": Loss.NODE,
    "BOOT_FAIL": Loss.NODE,
    "PREEMPTED": Loss.PREEMPTED,
    "CANCELLED": Loss.WITHDRAWN,
    "REVOKED": Loss.CANCELLED,
}

# Reasons with which Slurm itself cancels a job that it could not start: no user requested that.
_NOT_STARTED = frozenset(("JobLaunchFailure", "Prolog"))
# A node that cannot start a batch script cancels its job without a reason, this soon after Slurm chose it. It
# takes a second, but slurmctld may be busy or away when the node reports that.
_LAUNCH_FAILURE_S = 60

# Slurm's pending reasons as sentences; others are shown as they are.
_REASONS = {
    "Resources": "Slurm waits for nodes with enough free resources.",
    "Priority": "Other jobs come first in Slurm's queue.",
    "Dependency": "Slurm waits for another job.",
    "JobHeldUser": "The job is held in Slurm.",
    "JobHeldAdmin": "An administrator holds the job in Slurm.",
    "BeginTime": "Slurm waits for the job's begin time.",
    "ReqNodeNotAvail": "Nodes that the job needs are down or reserved.",
    "PartitionConfig": "The job requests more than its partition has or allows.",
    "PartitionDown": "The partition is down.",
    "PartitionInactive": "The partition is inactive.",
    "PartitionNodeLimit": "The job needs more nodes than its partition has.",
    "PartitionTimeLimit": "The job requests more time than its partition allows.",
    "Reservation": "Slurm waits for a reservation to begin.",
    "Licenses": "Slurm waits for licences.",
}


SUSPENDED = Notice(
    "SlurmSuspended", "The job is suspended in Slurm: its tasks are paused until it is resumed.", "Warning"
)
RESUMED = Notice("SlurmResumed", "The job was resumed in Slurm: its tasks continue.")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job in Slurm; a heterogeneous job counts as one."""

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    # Uid of its owner.
    owner: int = -1
    # How long it has run, or ran.
    used_s: int = 0

    @property
    def is_pending(self) -> bool:
        return self.state in _PENDING

    @property
    def is_suspended(self) -> bool:
        return self.state == "SUSPENDED"

    @property
    def is_over(self) -> bool:
        return self.state in _FINISHED

    @property
    def loss(self) -> Loss:
        return Loss.UNKNOWN if self.reason in _NOT_STARTED else _LOSSES.get(self.state, Loss.UNKNOWN)

    @property
    def may_have_failed_to_launch(self) -> bool:
        """Whether its node may have cancelled it: in the queue it would have no nodes."""
        return self.state == "CANCELLED" and bool(self.nodes) and self.used_s <= _LAUNCH_FAILURE_S

    @property
    def timed_out(self) -> bool:
        return self.state in ("TIMEOUT", "DEADLINE")

    @property
    def out_of_memory(self) -> bool:
        return self.state == "OUT_OF_MEMORY"


def format_of(marker: str) -> str:
    """squeue's --format: each line begins with a random marker, which no job's comment can contain."""
    return f"{marker}|{_FORMAT}"


def read_jobs(lines: Iterable[str], marker: str) -> dict[str, list[SlurmJob]]:
    """This engine's jobs by gang uid, usually one each. Any account can give its job such a comment."""
    parts: dict[str, dict[str, list[SlurmJob]]] = {}
    for line in lines:
        start, _, rest = line.rstrip("\n").partition("|")
        fields = rest.split("|", _FIELDS)
        if start != marker or len(fields) <= _FIELDS:
            continue
        number, state, reason, nodes, owner, used, comment = fields
        uid = uid_of(comment)
        if uid:
            leader = number.partition("+")[0].partition("_")[0]
            uid_of_owner = int(owner) if owner.isdecimal() else -1
            job = SlurmJob(leader, state, reason, nodes, uid_of_owner, _seconds(used))
            parts.setdefault(uid, {}).setdefault(leader, []).append(job)
    return {
        uid: [_merge_components(components) for components in by_job.values()]
        for uid, by_job in parts.items()
    }


def _seconds(used: str) -> int:
    """Of a time as squeue prints it: `[days-][[hours:]minutes:]seconds`."""
    days, _, rest = used.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")):
        return 0
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds + 86_400 * int(days or 0)


def _merge_components(components: list[SlurmJob]) -> SlurmJob:
    """A heterogeneous job: pending while one component is, finished when all are; the worst end counts."""
    for job in components:
        if job.is_pending:
            return job
    running = [job for job in components if not job.is_over]
    if running:
        return running[0]
    return next((job for job in components if job.state != "COMPLETED"), components[0])


def pending_notice(job: SlurmJob) -> Notice | None:
    """The pending reason as a notice; None if Slurm has not given one."""
    if not job.is_pending or job.reason in ("", "None", "(null)"):
        return None
    known = _REASONS.get(job.reason.split(",")[0].split(" ")[0])
    return Notice(
        "FailedScheduling",
        f"{known} ({job.reason})" if known else f"The job is pending in Slurm: {job.reason}.",
        "Warning",
        pending=True,
    )
