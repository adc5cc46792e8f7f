"""HTTP client of a cluster: transport with retries, typed responses, following a job.

Callers pass addresses and tokens; nothing here reads settings or prints.
"""

from openpaisdk.client.cluster_client import ClusterClient
from openpaisdk.client.transport import Endpoint

__all__ = ["ClusterClient", "Endpoint"]
