"""Prometheus text format: metric families of the cluster and of the server, from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# A suffix to the family's name, labels, a value.
Sample = tuple[str, dict[str, str], float]

# Below this a float holds every integer exactly.
_EXACT_INTEGERS = 2.0**53
_RESOURCES = ("cpu", "memory_mb", "gpu")


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Capacity and free resources of a node, each as cores, MB of memory and GPUs."""

    capacity: tuple[int, int, int]
    free: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Jobs by state, pending jobs by virtual cluster, resources by node."""

    jobs: Mapping[str, int]
    pending_jobs: Mapping[str, int]
    nodes: Mapping[str, NodeResources]


@dataclass(frozen=True, slots=True)
class EventLoopSnapshot:
    """``max_lag_s`` is the largest lag since the last scrape."""

    lag_s: float
    max_lag_s: float
    stalls: int


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    writer_queue_age_s: float
    reconcile_age_s: float
    store_unwritable: bool
    quarantined_jobs: int
    stops_pending_write: int
    commits: int
    event_loop: EventLoopSnapshot | None = None


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """One metric family: its HELP and TYPE lines, then one line per sample."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        yield f"{name}{suffix}{{{inside}}} {_number(value)}" if inside else f"{name}{suffix} {_number(value)}"


def _number(value: float) -> str:
    """An exact number: ``:g`` has six digits, in which a large counter moves in steps of ten."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < _EXACT_INTEGERS):
        return str(int(value))
    return repr(value)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def cluster_lines(cluster: ClusterSnapshot) -> Iterator[str]:
    by_state: list[Sample] = [("", {"state": state}, count) for state, count in cluster.jobs.items()]
    yield from family("paicluster_jobs", "gauge", "Jobs by state.", by_state)
    pending: list[Sample] = [("", {"virtual_cluster": vc}, n) for vc, n in cluster.pending_jobs.items()]
    yield from family("paicluster_jobs_waiting", "gauge", "Pending jobs by virtual cluster.", pending)
    capacity: list[Sample] = []
    free: list[Sample] = []
    for name, node in cluster.nodes.items():
        for kind, node_capacity, node_free in zip(_RESOURCES, node.capacity, node.free, strict=True):
            labels = {"node": name, "resource": kind}
            capacity.append(("", labels, node_capacity))
            free.append(("", labels, max(0, node_free)))
    yield from family("paicluster_resources", "gauge", "Capacity of each node.", capacity)
    yield from family("paicluster_resources_free", "gauge", "Free resources of each node.", free)


def server_lines(server: ServerSnapshot) -> Iterator[str]:
    def one(name: str, text: str, value: float, kind: str = "gauge") -> Iterator[str]:
        return family(f"paicluster_{name}", kind, text, [("", {}, value)])

    yield from one("writer_queue_age_seconds", "Age of the oldest queued write.", server.writer_queue_age_s)
    yield from one(
        "reconcile_age_seconds", "Duration of the current reconcile so far.", server.reconcile_age_s
    )
    yield from one(
        "store_unwritable", "1 while the controller cannot write to the database.", server.store_unwritable
    )
    yield from one("jobs_quarantined", "Jobs quarantined after an unexpected error.", server.quarantined_jobs)
    yield from one(
        "stops_pending_write",
        "Stop requests in effect that are not yet written to the database.",
        server.stops_pending_write,
    )
    yield from one("database_commits_total", "Committed transactions.", server.commits, "counter")
    loop = server.event_loop
    if loop is not None:
        yield from one("event_loop_lag_seconds", "Last measured lag of the event loop.", loop.lag_s)
        yield from one(
            "event_loop_lag_max_seconds",
            "Largest lag of the event loop since the last scrape.",
            loop.max_lag_s,
        )
        yield from one(
            "event_loop_stalls_total",
            "Stalls of the event loop whose stack was logged.",
            loop.stalls,
            "counter",
        )
