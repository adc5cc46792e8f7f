"""``pai cluster-resources``: what is free, in each virtual cluster of each cluster."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.cli.waiting import Line, waiting_lines
from openpaisdk.client.values import CORES, GPUS, MEMORY
from openpaisdk.config.clusters import ClusterBook, ClusterEntry
from openpaisdk.errors import PaiError
from openpaisdk.jobs.target import open_cluster, open_entry
from openpaisdk.output import say, show, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.values import VirtualCluster

PATIENCE = 20.0


class _Question:
    """One cluster being asked; several are asked at once, so that one that is down holds up nobody."""

    def __init__(self, entry: ClusterEntry, book: ClusterBook):
        self.entry = entry
        self.book = book
        self.found: list[VirtualCluster] = []
        self.lines: dict[str, Line] = {}
        self.error: PaiError | None = None

    def ask(self) -> None:
        try:
            embedded = self.entry.is_embedded
            cluster = (
                open_cluster(self.entry.alias, book=self.book, tell=say)
                if embedded
                else open_entry(self.entry)
            )
            self.found = cluster.virtual_clusters()
            self.lines = waiting_lines(cluster, [vc.name for vc in self.found])
        except PaiError as e:
            self.error = e


def cluster_resources(argv: list[str]) -> int:
    """``pai cluster-resources [-a ALIAS]``"""
    parser = command_parser("cluster-resources", "pai cluster-resources")
    args = parser.parse(argv)
    book = ClusterBook.load()
    entries = [e for e in book.entries if not e.is_storage]
    if args.cluster_alias or not entries:
        entries = [book.choose(args.cluster_alias)]
    questions = [_Question(entry, book) for entry in entries]
    if len(questions) == 1:
        questions[0].ask()
    else:
        _ask_all(questions)
    rows = [_row(q.entry.alias, vc, q.lines.get(vc.name)) for q in questions for vc in q.found]
    lines = [f"{q.entry.alias} {vc}: {line}" for q in questions for vc, line in q.lines.items()]
    show(rows, args.output, lambda: "\n".join([_table(rows), *lines]))
    broken = [q for q in questions if q.error]
    if len(broken) == len(questions) == 1 and broken[0].error:
        raise broken[0].error
    for q in broken:
        say(f"pai: {q.error}")
    return 1 if broken else 0


def _ask_all(questions: list[_Question]) -> None:
    import threading
    import time

    threads = [threading.Thread(target=q.ask, daemon=True) for q in questions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread, q in zip(threads, questions, strict=True):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive() and q.error is None:
            q.error = PaiError(f"The cluster {q.entry.alias} did not answer within {PATIENCE:.0f} seconds.")


def _row(alias: str, vc: VirtualCluster, line: Line | None) -> dict[str, object]:
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
