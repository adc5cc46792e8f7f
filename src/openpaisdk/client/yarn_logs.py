"""Logs of OpenPAI's first generation: pages of the machine a task ran on, one for each stream."""

from __future__ import annotations

from openpaisdk.client.address import parse_uri
from openpaisdk.client.follow_stream import FollowRequest, Frame
from openpaisdk.client.transport import Endpoint, Transport
from openpaisdk.errors import ConnectionFailed, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client.cluster_client import ClusterClient
    from openpaisdk.client.models import Task

FILES = {"stdout": "user.pai.stdout", "stderr": "user.pai.stderr"}


def read_new_log_bytes(
    cluster: ClusterClient, task: Task, wanted: FollowRequest, files: dict[str, int]
) -> Iterator[Frame]:
    """What the pages have more than ``files`` says was read of them. The streams come one by one."""
    there = parse_uri(task.log)
    ours = cluster.transport.endpoint
    # The token is for the cluster, not for whatever machine a log lies on.
    token = ours.token if there.authority == ours.address.authority else ""
    endpoint = Endpoint(f"{there.scheme}://{there.authority}", ours.user, token, verify=ours.verify)
    transport = Transport(cluster.alias, endpoint)
    for stream, name in FILES.items():
        if wanted.stream not in ("all", stream):
            continue
        first = name not in files
        start = files.get(name, 0)
        try:
            answer = transport.request("GET", f"{there.prefix}/{name}/", values={"start": start}, tries=1)
        except (NotFound, ConnectionFailed):
            continue  # not there yet, or on a machine that cannot be reached from here
        data = _plain(answer.read(), answer.headers.get("content-type", ""))
        files[name] = start + len(data)
        if first and wanted.tail is not None:
            data = b"".join(data.splitlines(keepends=True)[-wanted.tail :]) if wanted.tail else b""
        if data:
            head: dict[str, object] = {"role": task.role, "index": task.index, "stream": stream}
            yield Frame("log", {**head, "offset": files[name] - len(data), "size": len(data)}, data)
    transport.close()


def _plain(body: bytes, kind: str) -> bytes:
    """The text of a page; YARN puts it between <pre> and </pre>."""
    if "html" not in kind:
        return body
    from html import unescape

    parts = []
    rest = body.decode("utf-8", "replace")
    while "<pre" in rest:
        _, _, rest = rest.partition("<pre")
        inside, _, rest = rest.partition(">")[2].partition("</pre>")
        parts.append(unescape(inside))
    return "".join(parts).encode()
