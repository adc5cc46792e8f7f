"""What is true of an attempt: from its folder, and where that is silent, from what Slurm says of its job."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from openpaisdk.fileio.network_fs import is_on_network
from paicluster.engines.common.attempt_folder import observation_from_record
from paicluster.engines.interface import ABSENT, Loss, Observation, Phase
from paicluster.engines.slurm import gang_folder, untrusted_files
from paicluster.engines.slurm.gang_registry import SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob
from pairuntime.slurm.slurm_attempt import refresh
from pairuntime.supervisor import attempt, claim

# How long the end of a task that Slurm ended waits for Slurm to say why.
_REASON_S = 15.0


def observe_attempt(
    home: gang_folder.SlurmFolders, uid: str, gang: SubmittedGang | None, lag_s: float
) -> Observation:
    path = home.task(uid)
    refresh(str(path))
    owner = untrusted_files.read_claim(path)
    if owner is None:
        return _unstarted(home, uid, gang, lag_s)
    claimed_ms = owner.get("claimed_ms") or None
    if owner and "pid" not in owner:  # a tombstone
        return _buried(owner, claimed_ms)
    ended = untrusted_files.read_exit_record(path)
    place = untrusted_files.place_of(path)
    if ended is not None and _is_known(path, uid, ended, gang, lag_s):
        seen = replace(_ended(ended, (path / attempt.STOP).exists(), gang, claimed_ms), placement=place)
        return _explained(home, uid, seen) if seen.start_error else seen
    if ended is None and gang is not None and gang.gone(lag_s):
        return replace(_lost(gang), started_ms=claimed_ms, placement=place)
    return Observation(Phase.RUNNING, started_ms=claimed_ms, placement=place)


def _explained(home: gang_folder.SlurmFolders, uid: str, seen: Observation) -> Observation:
    image, username = gang_folder.image_of(gang_folder.run_folder(home, uid).parent, uid)
    if not image:
        return seen
    # Few tasks need it.
    from paicluster.engines.slurm import image_errors

    return image_errors.explain(seen, image, username)


def _is_known(path: Path, uid: str, ended: dict[str, Any], gang: SubmittedGang | None, lag_s: float) -> bool:
    """Whoever hears of an end reads the whole log: it must be there by then, but is not waited for long."""
    if gang is None or not is_on_network(path):
        return True
    return untrusted_files.whole_log_is_shown(path, ended) or gang.knows_end(uid, lag_s)


def says(home: gang_folder.SlurmFolders, uid: str, what: str) -> bool:
    """Whether all that a task has to say for that is to be seen here."""
    path = home.task(uid)
    refresh(str(path))
    if not os.path.lexists(path / claim.NAME):
        return False
    if what != "ended":
        return True
    ended = untrusted_files.read_exit_record(path)
    return ended is not None and untrusted_files.whole_log_is_shown(path, ended)


def _unstarted(
    home: gang_folder.SlurmFolders, uid: str, gang: SubmittedGang | None, lag_s: float
) -> Observation:
    if gang is None:
        return ABSENT
    refused = gang_folder.read_flag(gang.folder, gang_folder.REFUSED)
    if refused is not None:
        return Observation(Phase.ENDED, ended_ms=int(time.time() * 1000), rejection=refused)
    if not gang.gone(lag_s):
        return Observation(Phase.QUEUED)
    # Slurm is done with it, and it never began. So it stays.
    lost = _lost(gang)
    if lost.loss is Loss.UNKNOWN:
        lost = replace(lost, loss=Loss.NOT_STARTED)
    if not claim.bury(str(home.task(uid)), uid, lost=lost.loss.value):  # type: ignore[union-attr]
        return observe_attempt(home, uid, gang, lag_s)
    return lost


def _buried(owner: dict[str, Any], claimed_ms: int | None) -> Observation:
    if owner.get("lost"):
        return Observation(Phase.LOST, ended_ms=claimed_ms, loss=owner["lost"])
    return Observation(Phase.ENDED, ended_ms=claimed_ms, stopped=True, killed_by_us=True)


def _ended(
    ended: dict[str, Any], asked: bool, gang: SubmittedGang | None, claimed_ms: int | None
) -> Observation:
    seen = observation_from_record(ended)
    if not ended.get("ended_by_slurm"):
        return seen
    if asked:
        # The signal came before the file that tells who sent it.
        return replace(seen, stopped=True)
    job = gang.seen if gang is not None else None
    if job is None or not job.over:
        if gang is not None and time.time() * 1000 - (seen.ended_ms or 0) < _REASON_S * 1000:
            gang.ending = True
            return Observation(Phase.RUNNING, started_ms=claimed_ms)
        return replace(seen, loss=Loss.CANCELLED)
    if job.out_of_time:
        return replace(seen, timed_out=True)
    loss = _loss_reason(gang, job)
    return replace(seen, loss=Loss.CANCELLED if loss is Loss.UNKNOWN else loss)


def _lost(gang: SubmittedGang) -> Observation:
    job = gang.seen
    if job is None:
        return Observation(Phase.LOST, loss=Loss.UNKNOWN)
    return Observation(
        Phase.LOST, loss=_loss_reason(gang, job), timed_out=job.out_of_time, out_of_memory=job.over_memory
    )


def _loss_reason(gang: SubmittedGang | None, job: SlurmJob) -> Loss:
    """What took it away. What somebody put back into the queue was cancelled there by us."""
    if job.loss is Loss.WITHDRAWN and gang is not None and (gang.folder / gang_folder.LEFT).exists():
        return Loss.CANCELLED
    return job.loss
