"""Connection of a node to the cluster's server, and the headers that its requests carry.

Travels as text in the batch script, in front of `bootstrap`: it can import nothing of this project.
"""

import http.client
import ssl
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# ssl.VERIFY_X509_PARTIAL_CHAIN, which has a name only since Python 3.10: any given certificate is an anchor.
_PARTIAL_CHAIN = 0x80000


def connect(config: "dict[str, Any]", timeout_s: "float") -> "http.client.HTTPConnection":
    parts = urlsplit(config["url"])
    if parts.scheme == "https":
        secure = ssl.create_default_context()
        # Absent if an older server submitted the job.
        if config.get("authority"):
            secure.load_verify_locations(cadata=config["authority"])
            secure.verify_flags |= _PARTIAL_CHAIN
        return http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=secure)
    return http.client.HTTPConnection(parts.netloc, timeout=timeout_s)


def headers(ticket: "str") -> "dict[str, str]":
    return {"Authorization": "Bearer " + ticket}
