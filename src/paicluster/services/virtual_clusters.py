"""Virtual clusters and their quotas: those of the settings, changed by administrators at run time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import Connection

from paicluster.scheduler.placement import NodeCapacity
from paicluster.scheduler.resource_requests import ResourceRequest, Resources
from paicluster.scheduler.shortage import Misfit, compare, never_fits
from paicluster.store import Store, groups, virtual_clusters
from paicluster.store.rows import VirtualClusterRow
from paiprotocol.errors import Conflict, Forbidden, NotFound

log = logging.getLogger("paicluster.api")

DEFAULT = groups.DEFAULT
NO_VIRTUAL_CLUSTER = "NoVirtualClusterError"
_MAX_KEPT_MISFITS = 4096
# Of larger jobs the answers would take much memory, and two are seldom the same.
_MAX_KEPT_ROLES = 16


class VirtualClusters:
    """Registry of virtual clusters.

    ``quotas`` and ``max_capacities`` are updated in place: the scheduler keeps references to them. Listeners
    are called after each change.
    """

    def __init__(
        self,
        store: Store,
        cluster_capacity: Callable[[], Resources],
        configured: Mapping[str, Resources],
        nodes: Callable[[], Sequence[NodeCapacity]] = tuple,
    ):
        """``nodes``: the nodes of our scheduler, without allocations; a new object when they change."""
        self._store = store
        self._cluster_capacity = cluster_capacity
        self._nodes = nodes
        # Answers of `misfit` for these nodes and the present quotas: most jobs ask for the same.
        self._misfits: dict[tuple[str, ResourceRequest, bool], Misfit | None] = {}
        self._misfit_nodes: Sequence[NodeCapacity] = ()
        self._configured = {name: quota for name, quota in configured.items() if name != DEFAULT}
        self._external: dict[str, Resources] = {}
        self._rows: dict[str, VirtualClusterRow] = {}
        self._listeners: list[Callable[[], None]] = []
        self.quotas: dict[str, Resources] = {}
        # Of those that may borrow idle resources, how much they may use in all.
        self.max_capacities: dict[str, Resources] = {}
        # Those that accept no new jobs.
        self.stopped: frozenset[str] = frozenset()
        rows = store.read_sync(virtual_clusters.list_clusters)
        self._apply(rows)
        store.write_sync(self._ensure_groups)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def set_external(self, quotas: Mapping[str, Resources]) -> None:
        """Virtual clusters backed by an external scheduler: each has all of that scheduler's resources."""
        self._external = dict(quotas)
        self._apply(list(self._rows.values()))
        self._store.write_sync(self._ensure_groups)

    def resize(self, quotas: Mapping[str, Resources]) -> None:
        """Update the resources of external virtual clusters; the set of them stays the same."""
        if all(self._external.get(name) == quota for name, quota in quotas.items()):
            return
        self._external.update(quotas)
        self.quotas.update(quotas)
        self._misfits.clear()

    def misfit(self, name: str, request: ResourceRequest, *, opportunistic: bool) -> Misfit | None:
        """Why a job could never start in this virtual cluster as it is now; None when it could."""
        nodes = self._nodes()
        if len(request.roles) > _MAX_KEPT_ROLES:
            return self._find_misfit(nodes, name, request, opportunistic=opportunistic)
        if nodes is not self._misfit_nodes or len(self._misfits) >= _MAX_KEPT_MISFITS:
            self._misfits.clear()
            self._misfit_nodes = nodes
        key = (name, request, opportunistic)
        if key not in self._misfits:
            self._misfits[key] = self._find_misfit(nodes, name, request, opportunistic=opportunistic)
        return self._misfits[key]

    def _find_misfit(
        self, nodes: Sequence[NodeCapacity], name: str, request: ResourceRequest, *, opportunistic: bool
    ) -> Misfit | None:
        if name in self._external:  # its scheduler knows the nodes
            numbers = compare(request, self.quotas[name], f"the virtual cluster {name} has at most {{}}")
            return Misfit(numbers, numbers) if numbers and any(self.quotas[name]) else None
        capacity = self.max_capacities.get(name, self.quotas[name])
        return never_fits(nodes, name, self._cluster_capacity() if opportunistic else capacity, request)

    def capacity(self, name: str) -> float:
        """Guaranteed part of the cluster, in percent; 100 for an external virtual cluster."""
        if name in self._external:
            return 100.0
        if name == DEFAULT:
            others = (other for other in self.quotas if other != DEFAULT and other not in self._external)
            return max(0.0, 100.0 - sum(map(self.capacity, others)))
        row = self._rows.get(name)
        if row is not None and row.capacity is not None:
            return row.capacity
        return _percent(self.quotas[name], self._cluster_capacity())

    def max_capacity(self, name: str) -> float:
        """Maximum part of the cluster including borrowed resources, in percent."""
        row = self._rows.get(name)
        return self.capacity(name) if row is None or row.max_capacity is None else row.max_capacity

    async def put(
        self, name: str, capacity: float, max_capacity: float, description: str = "", external_name: str = ""
    ) -> bool:
        """Set the capacity of a virtual cluster, taken from `default`; True when it is created."""
        if name in self._external:
            raise _read_only(name)
        created = name not in self.quotas
        cluster_capacity = self._cluster_capacity()
        quota = _fraction(cluster_capacity, capacity)

        def write(conn: Connection) -> list[VirtualClusterRow]:
            groups.ensure_group_of_cluster(conn, name, description, external_name)
            known = {row.name: row for row in virtual_clusters.list_clusters(conn)}
            status = known[name].status if name in known else "running"
            row = VirtualClusterRow(name, *quota, capacity, max_capacity, status)
            virtual_clusters.put_cluster(conn, row)
            rows = virtual_clusters.list_clusters(conn)
            quotas, percents = self._merge(rows), {row.name: row.capacity for row in rows}
            total = sum(
                percents.get(vc) or _percent(vc_quota, cluster_capacity) for vc, vc_quota in quotas.items()
            )
            if min(_remaining(cluster_capacity, quotas.values())) < 0 or total > 100.0001:
                raise Forbidden("No enough quota", code="NoEnoughQuotaError")
            return rows

        self._apply(await self._store.write(write))
        return created

    async def set_status(self, name: str, status: str) -> None:
        """Set whether a virtual cluster accepts jobs (`running`) or only finishes its own (`stopped`)."""
        if name not in self.quotas:
            raise no_cluster(name)

        def write(conn: Connection) -> list[VirtualClusterRow]:
            virtual_clusters.set_status(conn, name, status)
            return virtual_clusters.list_clusters(conn)

        self._apply(await self._store.write(write))

    async def remove(self, name: str) -> None:
        """Delete a virtual cluster and its group. Its quota returns to `default`."""
        if name not in self.quotas:
            raise NotFound(f"Can't delete a nonexistent vc {name}", code=NO_VIRTUAL_CLUSTER)
        if name in self._configured or name in self._external:
            raise _read_only(name)

        def write(conn: Connection) -> list[VirtualClusterRow]:
            count = virtual_clusters.unfinished_jobs(conn, name)
            if count:
                raise Forbidden(
                    f"Can't delete vc {name}, {count} jobs are running, stop them before delete vc",
                    code="RemoveRunningVcError",
                )
            virtual_clusters.delete_cluster(conn, name)
            groups.forget_cluster(conn, name)
            return virtual_clusters.list_clusters(conn)

        self._apply(await self._store.write(write))

    def _apply(self, rows: list[VirtualClusterRow]) -> None:
        merged = self._merge(rows)
        remaining = _remaining(self._cluster_capacity(), merged.values())
        if min(remaining) < 0:
            log.warning("The quotas of the virtual clusters exceed the cluster; `default` has nothing.")
        self._rows = {row.name: row for row in rows}
        self._misfits.clear()
        # In place and without locks: all readers are on the event loop's thread.
        self.quotas.clear()
        self.quotas.update({DEFAULT: Resources(*(max(0, amount) for amount in remaining)), **merged})
        self.quotas.update(self._external)
        self.max_capacities.clear()
        self.max_capacities.update(
            (row.name, _fraction(self._cluster_capacity(), row.max_capacity))
            for row in rows
            if row.max_capacity is not None and row.name in merged and row.name not in self._external
        )
        self.stopped = frozenset(
            row.name for row in rows if row.status == "stopped" and row.name in self.quotas
        )
        for listener in self._listeners:
            listener()

    def _merge(self, rows: list[VirtualClusterRow]) -> dict[str, Resources]:
        merged = dict(self._configured)
        for row in rows:
            if row.cpu is not None and row.memory_mb is not None and row.gpu is not None:
                merged[row.name] = Resources(row.cpu, row.memory_mb, row.gpu)
        return merged

    def _ensure_groups(self, conn: Connection) -> None:
        for name in self.quotas:
            try:
                groups.ensure_group_of_cluster(conn, name)
            except Conflict:
                log.warning("Group %s does not grant access to the virtual cluster of the same name.", name)


def no_cluster(name: str) -> NotFound:
    return NotFound(f"Vc {name} not found", code=NO_VIRTUAL_CLUSTER)


def _read_only(name: str) -> Forbidden:
    return Forbidden(
        f"Virtual cluster {name} is defined in the cluster's settings.",
        code="ReadOnlyVcError",
        hint="Change it there, and restart the server.",
    )


def _remaining(capacity: Resources, quotas: Iterable[Resources]) -> Resources:
    for quota in quotas:
        capacity = capacity.minus(quota)
    return capacity


def _fraction(capacity: Resources, percent: float) -> Resources:
    return Resources(*(int(amount * percent / 100) for amount in capacity))


def _percent(quota: Resources, capacity: Resources) -> float:
    """Percentage by GPUs, as in OpenPAI; by cores in a cluster without GPUs."""
    if capacity.gpu:
        return 100 * quota.gpu / capacity.gpu
    return 100 * quota.cpu / capacity.cpu if capacity.cpu else 0.0
