"""Where a client is sent to with its bytes: an address of ours, good for one path, one operation, minutes."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from paicluster.api.webhdfs import tickets
from paicluster.api.webhdfs.request import WebHdfsRequest

# What the second step needs of the first one's query.
_KEPT = ("overwrite", "permission", "createparent", "createflag", "offset", "length")


def redirect_url(call: WebHdfsRequest) -> str:
    """From the configured address, whatever the request says of where it came to."""
    query = {"op": call.operation}
    query |= {name: value for name in _KEPT if (value := call.parameters.text(name))}
    query["user.name"] = call.who.name
    query["data"] = "true"
    query["ticket"] = tickets.issue(call.context.tickets, call.operation, call.path, call.who)
    base = call.files.external_url.rstrip("/")
    return f"{base}{call.prefix}{quote(call.path)}?{urlencode(query)}"


def address(call: WebHdfsRequest) -> str:
    """The path as Hadoop's clients write it."""
    url = urlsplit(call.files.external_url)
    scheme = "swebhdfs" if url.scheme == "https" else "webhdfs"
    return f"{scheme}://{url.netloc}{quote(call.path)}"
