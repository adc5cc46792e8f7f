"""Reports of quotas: what users and groups may use, and what they use now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from paicluster.scheduler.quota_limits import HeldResources
from paicluster.services.storage_counter import StorageCounter
from paicluster.services.user_quotas import Kind, Quotas
from paicluster.store import Store, groups


class Used(NamedTuple):
    """What is used of a resource, and its limit; None: not limited."""

    used: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class QuotaReport:
    """Use of one quota."""

    kind: Kind
    name: str
    tasks: Used
    cpu: Used
    memory_mb: Used
    gpu: Used
    storage_bytes: Used


class RunningTasks(Protocol):
    def running(self) -> Mapping[str, HeldResources]:
        """Tasks of each user and what they hold."""


@dataclass(frozen=True, slots=True)
class QuotaReports:
    """Reports of one cluster. Use is reported without limits, too."""

    store: Store
    quotas: Quotas
    tasks: RunningTasks
    storage: StorageCounter

    async def of_user(self, username: str) -> list[QuotaReport]:
        """Use of the user's own quota, and of those of the user's groups."""
        limited = self.quotas.limited_groups(username)
        return [await self.report("user", username), *[await self.report("group", name) for name in limited]]

    async def report(self, kind: Kind, name: str) -> QuotaReport:
        """Limits and use of one user or group."""
        row = self.quotas.row(kind, name)
        members = [name] if kind == "user" else await self._members(name)
        running = self.tasks.running()
        used = HeldResources()
        for member in members:
            used = used.plus(running.get(member, HeldResources()))
        stored = await self.storage.used_by(members)
        return QuotaReport(
            kind,
            name,
            Used(used.tasks, row.tasks),
            Used(used.cpu, row.cpu),
            Used(used.memory_mb, row.memory_mb),
            Used(used.gpu, row.gpu),
            Used(stored, row.storage_bytes),
        )

    async def _members(self, group: str) -> list[str]:
        return [name for name, _ in await self.store.read(lambda conn: groups.members_of(conn, group))]
