"""HTTP to a cluster: one small transport, a few tries, typed answers, and following a job.

Takes addresses and tokens from its callers; knows nothing of files or of how results print.
"""

from openpaisdk.client.cluster_client import ClusterClient
from openpaisdk.client.transport import Endpoint

__all__ = ["ClusterClient", "Endpoint"]
