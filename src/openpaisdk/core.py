"""Public names for scripts: clusters, jobs, a client."""

from openpaisdk.binding.client import OpenPAIClient
from openpaisdk.binding.cluster import AsyncCluster, Cluster
from openpaisdk.binding.cluster_list import ClusterList
from openpaisdk.binding.job import AsyncJob, Job

__all__ = ["AsyncCluster", "AsyncJob", "Cluster", "ClusterList", "Job", "OpenPAIClient"]
