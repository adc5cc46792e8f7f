"""Quotas of users and groups: what their jobs may hold at a time, as the planner compares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paicluster.scheduler.node_capacity import show_amount
from paicluster.scheduler.resource_requests import ResourceRequest, Resources

# No limit of a resource: more than any cluster has.
UNLIMITED = 1 << 62
_UNITS = (("task", "tasks"), ("core", "cores"), ("MB of memory", "MB of memory"), ("GPU", "GPUs"))


class Running(NamedTuple):
    """Tasks that run or are being started, and what they hold."""

    tasks: int = 0
    cpu: int = 0
    memory_mb: int = 0
    gpu: int = 0

    def plus(self, other: Running, times: int = 1) -> Running:
        return Running(*(mine + theirs * times for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Running) -> Running:
        return self.plus(other, -1)

    def fits(self, free: Running) -> bool:
        return all(amount <= have for amount, have in zip(self, free, strict=True))

    @property
    def resources(self) -> Resources:
        return Resources(self.cpu, self.memory_mb, self.gpu)


class QuotaLimit(NamedTuple):
    """Limit of one ``owner`` (`user alice`, `group vision`)."""

    owner: str
    limit: Running


class QuotaUsage:
    """What is used of each quota. A user without a quota costs one lookup."""

    def __init__(self, limits: Mapping[str, tuple[QuotaLimit, ...]], running: Mapping[str, Running]):
        """``limits``: of each user that has any. ``running``: of each user that has tasks."""
        self._limits = limits
        self._used: dict[str, Running] = {}
        if limits:
            for user, amounts in running.items():
                self.add(user, amounts)

    def add(self, user: str, amounts: Running) -> None:
        for owner, _ in self._limits.get(user, ()):
            self._used[owner] = self._used.get(owner, Running()).plus(amounts)

    def left(self, user: str) -> Running | None:
        """What the user may still start; None when nothing limits it."""
        limits = self._limits.get(user)
        if not limits:
            return None
        rests = [limit.minus(self._used.get(owner, Running())) for owner, limit in limits]
        return Running(*map(min, *rests)) if len(rests) > 1 else rests[0]

    def pending_reason(self, user: str, request: ResourceRequest) -> str:
        """Why a job must wait for a quota; empty when it need not."""
        limits = self._limits.get(user)
        if not limits:
            return ""
        if misfit := never_fits(limits, request):
            return f"The job can never start within the {misfit}"
        for owner, limit in limits:
            left = limit.minus(self._used.get(owner, Running()))
            for amount, rest, most, unit in zip(least(request), left, limit, _UNITS, strict=True):
                if amount > rest:
                    rest = max(0, rest)
                    return (
                        f"The job waits for the quota of {owner}: {_asker(request)} asks for "
                        f"{show_amount(amount, unit)}; {rest} of {show_amount(most, unit)} "
                        f"{'is' if rest == 1 else 'are'} left."
                    )
        return ""


def never_fits(limits: Sequence[QuotaLimit], request: ResourceRequest) -> str:
    """Which quota a job could not start within if nothing else ran, with both numbers; empty if it could."""
    for owner, limit in limits:
        for amount, most, unit in zip(least(request), limit, _UNITS, strict=True):
            if amount > most:
                return (
                    f"quota of {owner}: {_asker(request)} asks for {show_amount(amount, unit)}; "
                    f"the quota is {show_amount(most, unit)}."
                )
    return ""


def least(request: ResourceRequest) -> Running:
    """The least with which a job can start."""
    return Running(request.tasks if request.gang else 1, *request.minimum)


def _asker(request: ResourceRequest) -> str:
    return "it" if request.gang else "a task of it"
