"""What Slurm says of its jobs, and what it means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paicluster.engines.interface import Loss, Notice
from paicluster.engines.slurm.sbatch_command import uid_of

# One line a job. The comment comes last: it may hold anything, also the end of a line.
_FORMAT = "%i|%T|%r|%N|%U|%k"
_FIELDS = _FORMAT.count("|")

_WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_OVER = frozenset(
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

# Why Slurm itself cancels what it could not start: nobody wanted that.
_NOT_STARTED = frozenset(("JobLaunchFailure", "Prolog"))

# Slurm's reasons in words for people; others are told as they are.
_REASONS = {
    "Resources": "Slurm waits for nodes with enough free.",
    "Priority": "Other jobs come first in Slurm's queue.",
    "Dependency": "Slurm waits for another job.",
    "JobHeldUser": "The job is held in Slurm.",
    "JobHeldAdmin": "An administrator holds the job in Slurm.",
    "BeginTime": "Slurm waits for the time at which the job may begin.",
    "ReqNodeNotAvail": "Nodes that the job needs are down or reserved.",
    "PartitionConfig": "The job asks for more than its partition has or allows.",
    "PartitionDown": "The partition is down.",
    "PartitionInactive": "The partition is inactive.",
    "PartitionNodeLimit": "The job needs more nodes than its partition has.",
    "PartitionTimeLimit": "The job asks for more time than its partition allows.",
    "Reservation": "Slurm waits for a reservation to begin.",
    "Licenses": "Slurm waits for licences.",
}


SUSPENDED = Notice(
    "SlurmSuspended", "The job is suspended in Slurm: its tasks stand still until it is resumed.", "Warning"
)
RESUMED = Notice("SlurmResumed", "The job was resumed in Slurm: its tasks go on.")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job as Slurm tells of it; of one with several components, the whole."""

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    # Whose it is.
    owner: int = -1

    @property
    def waiting(self) -> bool:
        return self.state in _WAITING

    @property
    def suspended(self) -> bool:
        return self.state == "SUSPENDED"

    @property
    def over(self) -> bool:
        return self.state in _OVER

    @property
    def loss(self) -> Loss:
        return Loss.UNKNOWN if self.reason in _NOT_STARTED else _LOSSES.get(self.state, Loss.UNKNOWN)

    @property
    def out_of_time(self) -> bool:
        return self.state in ("TIMEOUT", "DEADLINE")

    @property
    def over_memory(self) -> bool:
        return self.state == "OUT_OF_MEMORY"


def format_of(word: str) -> str:
    """How squeue is to tell of jobs: each line begins with a word that nobody could know beforehand."""
    return f"{word}|{_FORMAT}"


def read_jobs(lines: Iterable[str], word: str) -> dict[str, list[SlurmJob]]:
    """Our jobs, by the uid of the gang; usually one each. Anybody can call a job of his own one of ours."""
    parts: dict[str, dict[str, list[SlurmJob]]] = {}
    for line in lines:
        began, _, rest = line.rstrip("\n").partition("|")
        fields = rest.split("|", _FIELDS)
        if began != word or len(fields) <= _FIELDS:
            continue
        number, state, reason, nodes, owner, comment = fields
        uid = uid_of(comment)
        if uid:
            leader = number.partition("+")[0].partition("_")[0]
            whose = int(owner) if owner.isdecimal() else -1
            job = SlurmJob(leader, state, reason, nodes, whose)
            parts.setdefault(uid, {}).setdefault(leader, []).append(job)
    return {uid: [_whole(found) for found in by_job.values()] for uid, by_job in parts.items()}


def _whole(found: list[SlurmJob]) -> SlurmJob:
    """Of several components: it waits while one waits, and is over when all are; the worst end tells."""
    for job in found:
        if job.waiting:
            return job
    running = [job for job in found if not job.over]
    if running:
        return running[0]
    return next((job for job in found if job.state != "COMPLETED"), found[0])


def pending_notice(job: SlurmJob) -> Notice | None:
    """What people should know of a job that waits; nothing when there is nothing to say yet."""
    if not job.waiting or job.reason in ("", "None", "(null)"):
        return None
    known = _REASONS.get(job.reason.split(",")[0].split(" ")[0])
    return Notice(
        "FailedScheduling",
        f"{known} ({job.reason})" if known else f"Slurm keeps the job waiting: {job.reason}.",
        "Warning",
    )
