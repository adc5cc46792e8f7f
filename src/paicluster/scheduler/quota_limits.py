"""Quotas of users and groups: what their jobs may hold at a time, as the planner compares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paicluster.scheduler.resource_requests import ResourceRequest, Resources
from paicluster.scheduler.shortage import show_amount

# No limit of a resource: more than any cluster has.
UNLIMITED = 1 << 62
_UNITS = (("task", "tasks"), ("core", "cores"), ("MB of memory", "MB of memory"), ("GPU", "GPUs"))


class HeldResources(NamedTuple):
    """Tasks that run or are being started, and what they hold."""

    tasks: int = 0
    cpu: int = 0
    memory_mb: int = 0
    gpu: int = 0

    def plus(self, other: HeldResources, times: int = 1) -> HeldResources:
        return HeldResources(*(mine + theirs * times for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: HeldResources) -> HeldResources:
        return self.plus(other, -1)

    def fits(self, free: HeldResources) -> bool:
        """Whether ``free`` has room for it; a resource that it does not request may be overcommitted."""
        return all(amount <= max(0, have) for amount, have in zip(self, free, strict=True))

    @property
    def resources(self) -> Resources:
        return Resources(self.cpu, self.memory_mb, self.gpu)


class QuotaLimit(NamedTuple):
    """Limit of one ``owner`` (`user alice`, `group vision`)."""

    owner: str
    limit: HeldResources


class QuotaUsage:
    """What is used of each quota. A user without a quota costs one lookup."""

    def __init__(self, limits: Mapping[str, tuple[QuotaLimit, ...]], running: Mapping[str, HeldResources]):
        """``limits``: of each user that has any. ``running``: of each user that has tasks."""
        self._limits = limits
        self._used: dict[str, HeldResources] = {}
        if limits:
            for user, amounts in running.items():
                self.add(user, amounts)

    def add(self, user: str, amounts: HeldResources) -> None:
        for owner, _ in self._limits.get(user, ()):
            self._used[owner] = self._used.get(owner, HeldResources()).plus(amounts)

    def remaining(self, user: str) -> HeldResources | None:
        """Resources that the user may still hold; None without a limit."""
        limits = self._limits.get(user)
        if not limits:
            return None
        rests = [limit.minus(self._used.get(owner, HeldResources())) for owner, limit in limits]
        return HeldResources(*map(min, *rests)) if len(rests) > 1 else rests[0]

    def pending_reason(self, user: str, request: ResourceRequest) -> str:
        """Why a job must wait for a quota; empty when it need not."""
        limits = self._limits.get(user)
        if not limits:
            return ""
        if misfit := exceeded_quota(limits, request):
            return f"The job can never start within the {misfit}"
        for owner, limit in limits:
            remaining = limit.minus(self._used.get(owner, HeldResources()))
            for amount, rest, most, unit in zip(least(request), remaining, limit, _UNITS, strict=True):
                # What it does not ask for may be overdrawn: the quota was larger before.
                if amount > max(0, rest):
                    rest = max(0, rest)
                    return (
                        f"The job waits for the quota of {owner}: {_asker(request)} asks for "
                        f"{show_amount(amount, unit)}; {rest} of {show_amount(most, unit)} "
                        f"{'is' if rest == 1 else 'are'} left."
                    )
        return ""


def exceeded_quota(limits: Sequence[QuotaLimit], request: ResourceRequest) -> str:
    """The quota that is too small for a job even if nothing else runs, with both numbers; else empty."""
    for owner, limit in limits:
        for amount, most, unit in zip(least(request), limit, _UNITS, strict=True):
            if amount > most:
                return (
                    f"quota of {owner}: {_asker(request)} asks for {show_amount(amount, unit)}; "
                    f"the quota is {show_amount(most, unit)}."
                )
    return ""


def least(request: ResourceRequest) -> HeldResources:
    """Smallest resources with which a job can start."""
    return HeldResources(request.tasks if request.gang else 1, *request.minimum)


def _asker(request: ResourceRequest) -> str:
    return "it" if request.gang else "a task of it"
