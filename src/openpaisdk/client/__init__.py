"""HTTP to a cluster: one small transport, a few tries, typed answers, and following a job.

Takes addresses and tokens from its callers; knows nothing of files or of how results print.
"""

from openpaisdk.client.cluster import Cluster
from openpaisdk.client.transport import Endpoint

__all__ = ["Cluster", "Endpoint"]
