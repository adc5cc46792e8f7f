"""YARN log pages, the logs of OpenPAI's first generation: one page per stream, served by the task's node."""

from __future__ import annotations

from openpaisdk.client.address import parse_uri
from openpaisdk.client.follow_stream import FollowRequest, Frame
from openpaisdk.client.transport import Endpoint, Transport
from paiprotocol.errors import ConnectionFailed, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client.cluster_client import ClusterClient
    from openpaisdk.client.models import Task

FILES = {"stdout": "user.pai.stdout", "stderr": "user.pai.stderr"}


def read_new_log_bytes(
    cluster: ClusterClient, task: Task, request: FollowRequest, files: dict[str, int]
) -> Iterator[Frame]:
    """New log bytes, one stream after the other. ``files`` holds the offset already read per file."""
    address = parse_uri(task.log)
    cluster_endpoint = cluster.transport.endpoint
    # The token is for the cluster and must not go to the node that serves the log.
    token = cluster_endpoint.token if address.netloc == cluster_endpoint.address.netloc else ""
    endpoint = Endpoint(
        f"{address.scheme}://{address.netloc}",
        cluster_endpoint.user,
        token,
        verify=cluster_endpoint.verify,
    )
    transport = Transport(cluster.alias, endpoint)
    for stream, name in FILES.items():
        if request.stream not in ("all", stream):
            continue
        first = name not in files
        start = files.get(name, 0)
        try:
            path = f"{address.prefix}/{name}/"
            response = transport.request("GET", path, values={"start": start}, tries=1, whole=True)
        except (NotFound, ConnectionFailed):
            continue  # not written yet, or the node is not reachable from here
        data = _page_text(response.read(), response.headers.get("content-type", ""))
        files[name] = start + len(data)
        if first and request.tail is not None:
            data = b"".join(data.splitlines(keepends=True)[-request.tail :]) if request.tail else b""
        if data:
            head: dict[str, object] = {"role": task.role, "index": task.index, "stream": stream}
            yield Frame("log", {**head, "offset": files[name] - len(data), "size": len(data)}, data)
    transport.close()


def _page_text(body: bytes, content_type: str) -> bytes:
    """Text of a log page; YARN puts it between <pre> and </pre>."""
    if "html" not in content_type:
        return body
    from html import unescape

    parts = []
    rest = body.decode("utf-8", "replace")
    while "<pre" in rest:
        _, _, rest = rest.partition("<pre")
        inside, _, rest = rest.partition(">")[2].partition("</pre>")
        parts.append(unescape(inside))
    return "".join(parts).encode()
