"""Virtual clusters, nodes, storages: what there is."""

from __future__ import annotations

import msgspec

from paicluster.api.description.jobs import Count
from paicluster.api.description.operation import Either, Operation, Query, Wire


class Resources(Wire):
    cpu: float
    memory: float
    gpu: Count
    v_cores: float
    gpus: Count = msgspec.field(name="GPUs")


class VirtualCluster(Wire):
    capacity: float
    max_capacity: float
    used_capacity: float
    dedicated: bool
    resources_used: Resources
    resources_guaranteed: Resources
    resources_total: Resources


class NodeGpus(Wire):
    gpu_used: Count
    gpu_available: int
    gpu_total: Count


OPERATIONS: dict[str, Operation] = {
    "v2.clusters.list_clusters": Operation(
        "All virtual clusters, or with `nodes` the GPUs of each node",
        "virtual cluster",
        {200: Either(dict[str, VirtualCluster], dict[str, NodeGpus])},
        query=(Query("nodes", about="Its presence counts."),),
    ),
    "v2.clusters.one_cluster": Operation(
        "A virtual cluster", "virtual cluster", {200: VirtualCluster}, (400,)
    ),
}
