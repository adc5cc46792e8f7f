"""Observation of an attempt: from its folder, which holds what it reported and what Kubernetes said."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from paicluster.engines.common import untrusted_files
from paicluster.engines.common.attempt_folder import observation_from_record
from paicluster.engines.interface import ABSENT, Loss, Observation, Phase
from paicluster.engines.kubernetes import gang_folder
from paicluster.engines.kubernetes.pod_states import Verdict
from pairuntime.supervisor import attempt


def observe_attempt(path: Path, *, is_prepared: bool, reason_timeout_s: float) -> Observation:
    """``is_prepared``: whether its gang is complete on disk."""
    owner = untrusted_files.read_claim(path)
    verdict = gang_folder.read_verdict(path)
    if owner is None:
        if verdict is not None and verdict.rejection:
            ended_ms = int((path / gang_folder.VERDICT).stat().st_mtime * 1000)
            return Observation(
                Phase.ENDED,
                ended_ms=ended_ms,
                rejection=verdict.rejection,
                platform_code=verdict.platform_code,
            )
        return Observation(Phase.QUEUED) if is_prepared else ABSENT
    claimed_ms = owner.get("claimed_ms") or None
    if owner and "pid" not in owner:  # a tombstone
        if owner.get("lost"):
            return Observation(Phase.LOST, ended_ms=claimed_ms, loss=owner["lost"])
        return Observation(Phase.ENDED, ended_ms=claimed_ms, stopped=True, killed_by_us=True)
    placement = untrusted_files.read_placement(path)
    record = untrusted_files.read_exit_record(path)
    if record is not None:
        is_outside = record["ended_outside"]
        if verdict is None and needs_verdict(record, is_outside=is_outside):
            if time.time() * 1000 - record["ended_ms"] < reason_timeout_s * 1000:
                return Observation(Phase.RUNNING, started_ms=claimed_ms, placement=placement)
            verdict = Verdict(loss=Loss.CANCELLED) if is_outside else Verdict()
        seen = replace(observation_from_record(record), placement=placement)
        if is_outside and (path / attempt.STOP).exists():
            # The signal came before the file that says who sent it.
            return replace(seen, stopped=True)
        return _with_verdict(seen, verdict, is_outside=is_outside)
    if verdict is not None:
        if verdict.rejection:
            return Observation(
                Phase.ENDED,
                started_ms=claimed_ms,
                ended_ms=int((path / gang_folder.VERDICT).stat().st_mtime * 1000),
                start_error=verdict.rejection,
                platform_code=verdict.platform_code,
                placement=placement,
            )
        return Observation(
            Phase.LOST,
            started_ms=claimed_ms,
            loss=verdict.loss or Loss.UNKNOWN,
            out_of_memory=verdict.out_of_memory,
            placement=placement,
        )
    return Observation(Phase.RUNNING, started_ms=claimed_ms, placement=placement)


def needs_verdict(record: dict[str, Any], *, is_outside: bool) -> bool:
    """Whether only Kubernetes knows why an attempt ended so: it was killed, or ended from outside."""
    killed = record.get("signal") == signal.SIGKILL and not record.get("signals_sent")
    return is_outside or killed


def _with_verdict(seen: Observation, verdict: Verdict | None, *, is_outside: bool) -> Observation:
    if verdict is None:
        return seen
    if verdict.out_of_memory and (seen.exit_code or seen.signal):
        return replace(seen, out_of_memory=True)
    if is_outside:
        return replace(seen, loss=verdict.loss or Loss.CANCELLED, platform_code=verdict.platform_code)
    return seen
