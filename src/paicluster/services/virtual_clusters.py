"""Every virtual cluster with its share: what the settings give, and what was changed since."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from sqlalchemy import Connection

from openpaisdk.errors import Conflict, Forbidden, NotFound
from paicluster.scheduler.resource_requests import Resources
from paicluster.store import Store, groups, virtual_clusters
from paicluster.store.rows import ClusterRow

log = logging.getLogger("paicluster.api")

DEFAULT = groups.DEFAULT


class VirtualClusters:
    """``shares`` and ``limits`` stay the same objects: who holds one sees the changes, and hears of it."""

    def __init__(self, store: Store, whole: Callable[[], Resources], given: Mapping[str, Resources]):
        self._store = store
        self._whole = whole
        self._configured = {name: share for name, share in given.items() if name != DEFAULT}
        self._elsewhere: dict[str, Resources] = {}
        self._changed: dict[str, ClusterRow] = {}
        self._listeners: list[Callable[[], None]] = []
        self.shares: dict[str, Resources] = {}
        # Of those that may have more than their share when others leave it idle, how much.
        self.limits: dict[str, Resources] = {}
        # Those that take no new jobs.
        self.stopped: frozenset[str] = frozenset()
        rows = store.read_sync(virtual_clusters.list_clusters)
        self._take(rows)
        store.write_sync(self._ensure_groups)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def set_external(self, shares: Mapping[str, Resources]) -> None:
        """These are scheduled by somebody else, and have all that he has."""
        self._elsewhere = dict(shares)
        self._take(list(self._changed.values()))
        self._store.write_sync(self._ensure_groups)

    def resize(self, shares: Mapping[str, Resources]) -> None:
        """What was handed over has changed; which these are has not."""
        self._elsewhere.update(shares)
        self.shares.update(shares)

    def capacity(self, name: str) -> float:
        """Its part of the cluster, in percent; of somebody else's it has all."""
        if name in self._elsewhere:
            return 100.0
        if name == DEFAULT:
            others = (other for other in self.shares if other != DEFAULT and other not in self._elsewhere)
            return max(0.0, 100.0 - sum(map(self.capacity, others)))
        row = self._changed.get(name)
        if row is not None and row.capacity is not None:
            return row.capacity
        return _percent(self.shares[name], self._whole())

    def max_capacity(self, name: str) -> float:
        """What it may grow to, in percent."""
        row = self._changed.get(name)
        return self.capacity(name) if row is None or row.max_capacity is None else row.max_capacity

    async def put(
        self, name: str, capacity: float, largest: float, description: str = "", external_name: str = ""
    ) -> bool:
        """Give a virtual cluster this part of the whole, taken from `default`; True when it is new."""
        if name in self._elsewhere:
            raise _fixed(name)
        created = name not in self.shares
        whole = self._whole()
        share = _part(whole, capacity)

        def write(conn: Connection) -> list[ClusterRow]:
            groups.ensure_group_of_cluster(conn, name, description, external_name)
            known = {row.name: row for row in virtual_clusters.list_clusters(conn)}
            status = known[name].status if name in known else "running"
            virtual_clusters.put_cluster(conn, ClusterRow(name, *share, capacity, largest, status))
            rows = virtual_clusters.list_clusters(conn)
            merged, asked = self._merged(rows), {row.name: row.capacity for row in rows}
            taken = sum(asked.get(one) or _percent(given, whole) for one, given in merged.items())
            if min(_rest(whole, merged.values())) < 0 or taken > 100.0001:
                raise Forbidden("No enough quota", code="NoEnoughQuotaError")
            return rows

        self._take(await self._store.write(write))
        return created

    async def set_status(self, name: str, status: str) -> None:
        """Let a virtual cluster take jobs (`running`), or only finish those it has (`stopped`)."""
        if name not in self.shares:
            raise no_cluster(name)

        def write(conn: Connection) -> list[ClusterRow]:
            virtual_clusters.set_status(conn, name, status)
            return virtual_clusters.list_clusters(conn)

        self._take(await self._store.write(write))

    async def remove(self, name: str) -> None:
        """Take a virtual cluster away, with its group. Its share goes back to `default`."""
        if name not in self.shares:
            raise NotFound(f"Can't delete a nonexistent vc {name}", code="NoVirtualClusterError")
        if name in self._configured or name in self._elsewhere:
            raise _fixed(name)

        def write(conn: Connection) -> list[ClusterRow]:
            count = virtual_clusters.unfinished_jobs(conn, name)
            if count:
                raise Forbidden(
                    f"Can't delete vc {name}, {count} jobs are running, stop them before delete vc",
                    code="RemoveRunningVcError",
                )
            virtual_clusters.delete_cluster(conn, name)
            groups.forget_cluster(conn, name)
            return virtual_clusters.list_clusters(conn)

        self._take(await self._store.write(write))

    def _take(self, rows: list[ClusterRow]) -> None:
        merged = self._merged(rows)
        rest = _rest(self._whole(), merged.values())
        if min(rest) < 0:
            log.warning("The virtual clusters together have more than the cluster; `default` has nothing.")
        self._changed = {row.name: row for row in rows}
        # One after the other on the loop's thread, where all who read it are.
        self.shares.clear()
        self.shares.update({DEFAULT: Resources(*(max(0, amount) for amount in rest)), **merged})
        self.shares.update(self._elsewhere)
        self.limits.clear()
        self.limits.update(
            (row.name, _part(self._whole(), row.max_capacity))
            for row in rows
            if row.max_capacity is not None and row.name in merged and row.name not in self._elsewhere
        )
        self.stopped = frozenset(
            row.name for row in rows if row.status == "stopped" and row.name in self.shares
        )
        for listener in self._listeners:
            listener()

    def _merged(self, rows: list[ClusterRow]) -> dict[str, Resources]:
        merged = dict(self._configured)
        for row in rows:
            if row.cpu is not None and row.memory_mb is not None and row.gpu is not None:
                merged[row.name] = Resources(row.cpu, row.memory_mb, row.gpu)
        return merged

    def _ensure_groups(self, conn: Connection) -> None:
        for name in self.shares:
            try:
                groups.ensure_group_of_cluster(conn, name)
            except Conflict:
                log.warning("The group %s gives no right to the virtual cluster of that name.", name)


def no_cluster(name: str) -> NotFound:
    return NotFound(f"Vc {name} not found", code="NoVirtualClusterError")


def _fixed(name: str) -> Forbidden:
    return Forbidden(
        f"Virtual cluster {name} is described in the cluster's settings.",
        code="ReadOnlyVcError",
        hint="Change it there, and start the server anew.",
    )


def _rest(whole: Resources, shares: Iterable[Resources]) -> Resources:
    for share in shares:
        whole = whole.minus(share)
    return whole


def _part(whole: Resources, percent: float) -> Resources:
    return Resources(*(int(amount * percent / 100) for amount in whole))


def _percent(share: Resources, whole: Resources) -> float:
    """By GPUs, as the original counts; by cores where there are none."""
    if whole.gpu:
        return 100 * share.gpu / whole.gpu
    return 100 * share.cpu / whole.cpu if whole.cpu else 0.0
