"""``pai cluster-resources``: what is free, in each virtual cluster of each cluster."""

from __future__ import annotations

from openpaisdk.cli.asking import report_failures
from openpaisdk.cli.parser import command_parser
from openpaisdk.cli.pending_reason import PendingQueue, waiting_lines
from openpaisdk.client.fanout import ClusterCall, call_all
from openpaisdk.client.models import CORES, GPUS, MEMORY
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.connect import open_cluster, open_entry
from openpaisdk.output import print_notice, show, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.models import VirtualCluster


def _free(entry: ClusterEntry, book: ClusterRegistry) -> tuple[list[VirtualCluster], dict[str, PendingQueue]]:
    here = entry.is_embedded
    cluster = open_cluster(entry.alias, book=book, tell=print_notice) if here else open_entry(entry)
    found = cluster.virtual_clusters()
    return found, waiting_lines(cluster, [vc.name for vc in found])


def cluster_resources(argv: list[str]) -> int:
    """``pai cluster-resources [-a ALIAS]``"""
    parser = command_parser("cluster-resources", "pai cluster-resources")
    args = parser.parse(argv)
    book = ClusterRegistry.load()
    entries = [e for e in book.entries if not e.is_storage]
    if args.cluster_alias or not entries:
        entries = [book.resolve(args.cluster_alias)]
    questions = [ClusterCall(e.alias, lambda e=e: _free(e, book)) for e in entries]  # type: ignore[misc]
    call_all(questions, notify=print_notice)
    answers = [(q.alias, *q.result) for q in questions if q.result is not None]
    rows = [_row(alias, vc, waits.get(vc.name)) for alias, found, waits in answers for vc in found]
    lines = [f"{alias} {vc}: {line}" for alias, _, waits in answers for vc, line in waits.items()]
    show(rows, args.output, lambda: "\n".join([_table(rows), *lines]))
    return report_failures(questions)


def _row(alias: str, vc: VirtualCluster, line: PendingQueue | None) -> dict[str, object]:
    row: dict[str, object] = {
        "cluster": alias,
        "virtualCluster": vc.name,
        "GPUs": vc.available(*GPUS),
        "totalGPUs": vc.total(*GPUS),
        "vCores": vc.available(*CORES),
        "totalVCores": vc.total(*CORES),
        "memoryMB": vc.available(*MEMORY),
        "totalMemoryMB": vc.total(*MEMORY),
        "waitingJobs": line.count if line else 0,
    }
    if line:
        row["reason"] = line.reason
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
