"""Observation of an attempt: from its folder, or else from the state of its Slurm job."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from paicluster.engines.common import untrusted_files
from paicluster.engines.common.attempt_folder import observation_from_record
from paicluster.engines.interface import ABSENT, Loss, Observation, Phase
from paicluster.engines.slurm import gang_folder
from paicluster.engines.slurm.gang_registry import SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob
from paicluster.engines.slurm.options import REASON_TIMEOUT_S
from pairuntime.local_files.network_fs import is_on_network
from pairuntime.slurm.slurm_attempt import refresh
from pairuntime.supervisor import attempt, claim


def observe_attempt(
    home: gang_folder.SlurmFolders,
    uid: str,
    gang: SubmittedGang | None,
    lag_s: float,
    reason_timeout_s: float = REASON_TIMEOUT_S,
) -> Observation:
    path = home.task(uid)
    # Before anything is read: a file system that does not answer for a while makes a record that was looked
    # for before its lag look as if it had been missing after it.
    is_gone = gang is not None and gang.is_gone(lag_s)
    refresh(str(path))
    owner = untrusted_files.read_claim(path)
    if owner is None:
        return _unstarted(home, uid, gang, lag_s, reason_timeout_s)
    claimed_ms = owner.get("claimed_ms") or None
    if owner and "pid" not in owner:  # a tombstone
        return _buried(owner, claimed_ms)
    ended = untrusted_files.read_exit_record(path)
    placement = untrusted_files.read_placement(path)
    if ended is not None and _log_is_visible(path, uid, ended, gang, lag_s):
        seen = _ended(ended, (path / attempt.STOP).exists(), gang, claimed_ms, reason_timeout_s)
        seen = replace(seen, placement=placement)
        return _with_image_error(home, uid, seen) if seen.start_error else seen
    if ended is None and gang is not None and is_gone:
        return replace(_lost(gang), started_ms=claimed_ms, placement=placement)
    return Observation(Phase.RUNNING, started_ms=claimed_ms, placement=placement)


def _with_image_error(home: gang_folder.SlurmFolders, uid: str, seen: Observation) -> Observation:
    image, username = gang_folder.image_of(gang_folder.run_folder(home, uid).parent, uid)
    if not image:
        return seen
    # Imported lazily: few tasks need it.
    from paicluster.engines.slurm import image_errors

    return image_errors.explain(seen, image, username)


def _log_is_visible(
    path: Path, uid: str, ended: dict[str, Any], gang: SubmittedGang | None, lag_s: float
) -> bool:
    """Whether the log is complete, since clients read it when they see the end; true after the lag."""
    if gang is None or not is_on_network(path):
        return True
    return untrusted_files.log_is_complete(path, ended) or gang.end_is_visible(uid, lag_s)


def event_is_visible(home: gang_folder.SlurmFolders, uid: str, event: str) -> bool:
    """Whether the files that belong to a task's event are visible here."""
    path = home.task(uid)
    refresh(str(path))
    if not os.path.lexists(path / claim.NAME):
        return False
    if event != "ended":
        return True
    ended = untrusted_files.read_exit_record(path)
    return ended is not None and untrusted_files.log_is_complete(path, ended)


def _unstarted(
    home: gang_folder.SlurmFolders,
    uid: str,
    gang: SubmittedGang | None,
    lag_s: float,
    reason_timeout_s: float,
) -> Observation:
    if gang is None:
        return ABSENT
    rejection = gang_folder.read_flag(gang.folder, gang_folder.REJECTED)
    if rejection is not None:
        return Observation(Phase.ENDED, ended_ms=int(time.time() * 1000), rejection=rejection)
    if not gang.is_gone(lag_s):
        return Observation(Phase.QUEUED)
    # Slurm has finished it, and the task never started. The tombstone makes that final.
    lost = _lost(gang)
    if lost.loss is Loss.UNKNOWN or (lost.loss is Loss.WITHDRAWN and _launch_failed(gang)):
        lost = replace(lost, loss=Loss.NOT_STARTED)
    try:
        is_final = claim.bury(str(home.task(uid)), uid, lost=lost.loss.value)  # type: ignore[union-attr]
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return Observation(Phase.QUEUED)  # until there is space for it
    if not is_final:
        return observe_attempt(home, uid, gang, lag_s, reason_timeout_s)
    return lost


def _launch_failed(gang: SubmittedGang) -> bool:
    """Whether a node could not start the batch script: then it cancels the job, as no user did.

    A script that has begun has claimed the gang.
    """
    may_have_failed = gang.seen is not None and gang.seen.may_have_failed_to_launch
    return may_have_failed and gang_folder.read_flag(gang.folder, gang_folder.OWNER) is None


def _buried(owner: dict[str, Any], claimed_ms: int | None) -> Observation:
    if owner.get("lost"):
        return Observation(Phase.LOST, ended_ms=claimed_ms, loss=owner["lost"])
    return Observation(Phase.ENDED, ended_ms=claimed_ms, stopped=True, killed_by_us=True)


def _ended(
    ended: dict[str, Any],
    stop_requested: bool,
    gang: SubmittedGang | None,
    claimed_ms: int | None,
    reason_timeout_s: float,
) -> Observation:
    seen = observation_from_record(ended)
    if not ended.get("ended_by_slurm"):
        return seen
    if stop_requested:
        # The signal came before the file that says who sent it.
        return replace(seen, stopped=True)
    job = gang.seen if gang is not None else None
    if job is None or not job.is_over:
        if gang is not None and time.time() * 1000 - (seen.ended_ms or 0) < reason_timeout_s * 1000:
            gang.ending = True
            return Observation(Phase.RUNNING, started_ms=claimed_ms)
        return replace(seen, loss=Loss.CANCELLED)
    if job.timed_out:
        return replace(seen, timed_out=True)
    loss = _loss_reason(gang, job)
    return replace(seen, loss=Loss.CANCELLED if loss is Loss.UNKNOWN else loss)


def _lost(gang: SubmittedGang) -> Observation:
    job = gang.seen
    if job is None:
        return Observation(Phase.LOST, loss=Loss.UNKNOWN)
    return Observation(
        Phase.LOST, loss=_loss_reason(gang, job), timed_out=job.timed_out, out_of_memory=job.out_of_memory
    )


def _loss_reason(gang: SubmittedGang | None, job: SlurmJob) -> Loss:
    """Why it was lost. A stale job that was requeued in Slurm was cancelled by the server itself."""
    if (
        job.loss is Loss.WITHDRAWN
        and gang is not None
        and (gang.folder / gang_folder.CANCELLED_AS_STALE).exists()
    ):
        return Loss.CANCELLED
    return job.loss
