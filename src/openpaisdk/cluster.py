"""Clusters, as scripts import them."""

from openpaisdk.binding.client import OpenPAIClient
from openpaisdk.binding.cluster import AsyncCluster, Cluster
from openpaisdk.binding.clusters import ClusterList

__all__ = ["AsyncCluster", "Cluster", "ClusterList", "OpenPAIClient"]
