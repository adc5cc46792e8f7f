"""``pai cluster-resources``: free resources of each virtual cluster."""

from __future__ import annotations

from openpaisdk.cli.jobs.pending_reason import PendingQueue, pending_queues
from openpaisdk.cli.parser import command_parser
from openpaisdk.client.fanout import ClusterCall, call_all, report_failures
from openpaisdk.client.models import CORES, GPUS, MEMORY
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.connect import open_cluster, open_entry
from openpaisdk.output import print_notice, show, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.models import VirtualCluster


def _query(
    entry: ClusterEntry, registry: ClusterRegistry
) -> tuple[list[VirtualCluster], dict[str, PendingQueue]]:
    cluster = (
        open_cluster(entry.alias, registry=registry, notify=print_notice)
        if entry.is_embedded
        else open_entry(entry)
    )
    virtual_clusters = cluster.usable_virtual_clusters()
    return virtual_clusters, pending_queues(cluster, [vc.name for vc in virtual_clusters])


def cluster_resources(argv: list[str]) -> int:
    """``pai cluster-resources [-a ALIAS]``"""
    parser = command_parser("cluster-resources", "pai cluster-resources")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    entries = [e for e in registry.entries if not e.is_storage]
    if args.cluster_alias or not entries or registry.own is not None:
        entries = [registry.resolve(args.cluster_alias)]
    calls = [ClusterCall(e.alias, lambda e=e: _query(e, registry)) for e in entries]  # type: ignore[misc]
    call_all(calls, notify=print_notice)
    results = [(call.alias, *call.result) for call in calls if call.result is not None]
    rows = [_row(alias, vc, queues.get(vc.name)) for alias, vcs, queues in results for vc in vcs]
    lines = [f"{alias} {vc}: {queue}" for alias, _, queues in results for vc, queue in queues.items()]
    show(rows, args.output, lambda: "\n".join([_table(rows), *lines]))
    return report_failures(calls, print_notice)


def _row(alias: str, vc: VirtualCluster, queue: PendingQueue | None) -> dict[str, object]:
    row: dict[str, object] = {
        "cluster": alias,
        "virtualCluster": vc.name,
        "GPUs": vc.available(*GPUS),
        "totalGPUs": vc.total(*GPUS),
        "vCores": vc.available(*CORES),
        "totalVCores": vc.total(*CORES),
        "memoryMB": vc.available(*MEMORY),
        "totalMemoryMB": vc.total(*MEMORY),
        "waitingJobs": queue.count if queue else 0,
    }
    if queue:
        row["reason"] = queue.reason
    return row


def _table(rows: list[dict[str, object]]) -> str:
    if not rows:
        return ""

    def of(free: object, total: object) -> str:
        return "-" if free is None else f"{free} of {total}"

    cells = [
        [
            str(r["cluster"]),
            str(r["virtualCluster"]),
            of(r["GPUs"], r["totalGPUs"]),
            of(r["vCores"], r["totalVCores"]),
            of(r["memoryMB"], r["totalMemoryMB"]),
        ]
        for r in rows
    ]
    headers = ["CLUSTER", "VIRTUAL CLUSTER", "GPUS FREE", "VCORES FREE", "MEMORY FREE (MB)"]
    return table(headers, cells, right=frozenset({2, 3, 4}))
