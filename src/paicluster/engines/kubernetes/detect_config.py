"""Detection for `paicluster init --kubernetes`: the cluster of the kubeconfig as a section of a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from paicluster.engines.engine_kind import DetectedConfig
from paicluster.engines.kubernetes import cluster_access
from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable, config_error
from paicluster.engines.kubernetes.api_objects import ApiNode, ApiNodeList, Version
from paicluster.engines.kubernetes.cluster_access import ClusterAccess
from paicluster.engines.kubernetes.nodes import is_ready
from paicluster.engines.kubernetes.options import DEFAULT_RUNTIME_IMAGE
from paicluster.engines.kubernetes.quantities import number
from paiprotocol.errors import ConfigError

# Resources of device plugins that are GPUs.
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")


def detect() -> DetectedConfig:
    """The section ``engine`` as text of a YAML file."""
    if cluster_access.is_in_pod():
        access = cluster_access.of_service_account()
    else:
        access = cluster_access.of_kubeconfig(cluster_access.kubeconfig_files())
    version, nodes = asyncio.run(_query(access))
    if not any(map(is_ready, nodes)):
        raise ConfigError(
            "The Kubernetes cluster has no nodes that are ready.", hint="Check: kubectl get nodes"
        )
    return section(access, version, nodes)


async def _query(access: ClusterAccess) -> tuple[Version, list[ApiNode]]:
    client = ApiClient(access)
    try:
        version = await client.get("/version", Version)
        return version, (await client.get("/api/v1/nodes", ApiNodeList)).items
    except (ApiError, ApiUnavailable) as error:
        raise config_error(error, "The nodes cannot be listed") from None
    finally:
        await client.close()


def section(access: ClusterAccess, version: Version, nodes: Sequence[ApiNode]) -> DetectedConfig:
    gpus: Counter[str] = Counter()
    for node in nodes:
        for name in GPU_RESOURCES:
            gpus[name] += int(number(node.status.allocatable.get(name)))
    kinds = [name for name, count in gpus.items() if count] or [GPU_RESOURCES[0]]
    namespace = access.namespace or "default"
    lines = [
        f"# Where tasks run: on the Kubernetes cluster {access.server} ({version.git_version}).",
        "# Pods report to this server: external-url, above, must be an address that they reach.",
        "engine:",
        "  type: kubernetes",
        "  # kubeconfig: ~/.kube/config          # default: KUBECONFIG; inside a pod its service account",
        "  # context: my-cluster",
        f"  namespace: {namespace}",
        f"  gpu-resource: {kinds[0]}",
        f"  # runtime-image: {DEFAULT_RUNTIME_IMAGE}",
        f"  # image: {DEFAULT_RUNTIME_IMAGE}       # of jobs that name none",
        "  # run-as: 1000                          # image: the users that the images have",
        "  # node-selector: {pool: training}",
        "  # tolerations: [{key: gpu, operator: Exists}]",
        "  # priority-class: batch",
        "  # pull-secrets: [registry]",
        "  # clusters:                             # by virtual cluster, where it differs",
        "  #   lab: {namespace: lab, node-selector: {team: lab}}",
    ]
    total = ", ".join(f"{count} {name}" for name, count in gpus.items() if count) or "no GPUs"
    message = f"Found {len(nodes)} nodes with {total}. Set external-url: pods report to it."
    return DetectedConfig("\n".join(lines) + "\n", message=message)
