"""Snapshots of a cluster for the scheduler, and what it decided."""

from __future__ import annotations

from paicluster.scheduler.needs import Amount, Need, RoleNeed
from paicluster.scheduler.plan import Decision, Snapshot, Start, Wait
from paicluster.scheduler.rooms import Room
from paicluster.scheduler.waiting import Waiting, WaitingJob

NODE = Amount(8, 8000, 4)


def need(cpu: int = 1, memory_mb: int = 100, gpu: int = 0, *, tasks: int = 1, gang: bool = True) -> Need:
    return Need((RoleNeed("main", tasks, Amount(cpu, memory_mb, gpu)),), gang)


def room(free: Amount = NODE, gpus: tuple[int, ...] | None = None, total: Amount = NODE) -> Room:
    return Room("n", total, free, tuple(range(free.gpu)) if gpus is None else gpus)


def waiting(*jobs: WaitingJob) -> Waiting:
    found = Waiting()
    for job in jobs:
        found.add(job)
    return found


def job(
    job_id: int, shape: Need, *, vc: str = "default", user: str = "ann", level: str = "test"
) -> WaitingJob:
    return WaitingJob(job_id, vc, user, level, shape)


def snapshot(free: Amount = NODE, **more: object) -> Snapshot:
    settings_: dict[str, object] = {"rooms": [room(free)], "shares": {"default": NODE}, "used": {}} | more
    return Snapshot(**settings_)  # type: ignore[arg-type]


def started(decisions: list[Decision]) -> list[int]:
    return [d.job_id for d in decisions if isinstance(d, Start)]


def waits(decisions: list[Decision]) -> dict[int, Wait]:
    return {d.job_id: d for d in decisions if isinstance(d, Wait)}
