"""Public names for scripts: clusters."""

from openpaisdk.binding.client import OpenPAIClient
from openpaisdk.binding.cluster import AsyncCluster, Cluster
from openpaisdk.binding.cluster_list import ClusterList

__all__ = ["AsyncCluster", "Cluster", "ClusterList", "OpenPAIClient"]
