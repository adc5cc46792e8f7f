"""Following a job over one connection that resumes where it broke: no byte lost, none twice.

The stream is a row of frames: one line of JSON, then ``size`` raw bytes where the line says so.
"""

from __future__ import annotations

import json
import time

from openpaisdk.client.http1 import HttpProtocolError
from openpaisdk.client.http_errors import connection_error
from openpaisdk.client.models import number, text
from openpaisdk.client.transport import STREAM_LOST
from openpaisdk.errors import ConnectionFailed, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client.cluster_client import ClusterClient
    from openpaisdk.client.http1 import Response

STREAM_TIMEOUT_S = 45.0
"""The cluster says something every 15 seconds. Three times nothing is a dead connection."""
RECONNECT_TIMEOUT_S = 600.0
"""How long a follower waits for a cluster that went away."""
NOTICE_AFTER_S = 1.0
"""A gap shorter than this is nobody's business."""
NO_LOG = "none"
RECONNECT_DELAYS_S = (0.02, 0.05, 0.1, 0.2, 0.5)


class Frame:
    """``kind`` is state, event, log, end, or one of ours: lost (the cluster went away) and back."""

    __slots__ = ("data", "head", "kind")

    def __init__(self, kind: str, head: dict[str, object], data: bytes = b""):
        self.kind = kind
        self.head = head
        self.data = data


class FollowRequest:
    """What to follow: which job, which of its tasks, which stream (``NO_LOG``: states only), from where."""

    __slots__ = ("follow", "index", "name", "role", "stream", "tail", "user")

    def __init__(
        self,
        name: str,
        user: str = "",
        *,
        role: str = "",
        index: int | None = None,
        stream: str = "all",
        tail: int | None = None,
        follow: bool = True,
    ):
        self.name = name
        self.user = user
        self.role = role
        self.index = index
        self.stream = stream
        self.tail = tail
        self.follow = follow


def follow_stream(
    cluster: ClusterClient, request: FollowRequest, *, reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
) -> Iterator[Frame]:
    """The frames of a job until it is over (or, without ``keep``, until what there is now has been sent)."""
    place = LogPosition(begins=0 if request.tail is None else None)
    first = True
    lost_at = 0.0
    told = False
    tries = 0
    while True:
        try:
            answer = _open(cluster, request, str(place), tries=3 if first else 1)
            first, tries = False, 0
            for frame in _frames(answer):
                if told:
                    yield Frame("back", {})
                lost_at, told = 0.0, False
                if frame.kind == "log" and (missing := place.pass_over(frame)):
                    yield _marker(frame, missing)
                if frame.kind != "ping":
                    yield frame
                if frame.kind == "end":
                    return
            if not request.follow:
                return  # everything there is was sent
        except (OSError, ConnectionFailed, Unavailable) as e:
            if first:
                raise e if isinstance(e, ConnectionFailed | Unavailable) else _gone(cluster, e) from None
        cluster.transport.close()
        now = time.monotonic()
        lost_at = lost_at or now
        if now - lost_at > reconnect_timeout_s:
            raise ConnectionFailed(f"{cluster.transport.where} went away and did not come back.")
        if not told and now - lost_at > NOTICE_AFTER_S:
            told = True
            yield Frame("lost", {})
        time.sleep(RECONNECT_DELAYS_S[min(tries, len(RECONNECT_DELAYS_S) - 1)])
        tries += 1
        if cluster.transport.renew:
            try:
                before = cluster.transport.endpoint
                cluster.transport.endpoint = cluster.transport.renew(STREAM_LOST, before) or before
            except (OSError, ConnectionFailed, Unavailable):
                pass  # it is asked again in a moment


def _open(cluster: ClusterClient, wanted: FollowRequest, position: str, tries: int) -> Response:
    return cluster.transport.request(
        "GET",
        cluster.job_path(wanted.name, wanted.user) + "/follow",
        values={
            "role": wanted.role,
            "index": wanted.index,
            "stream": wanted.stream,
            "from": position,
            "tail": None if position else wanted.tail,
            "follow": "true" if wanted.follow else "false",
        },
        timeout=STREAM_TIMEOUT_S,
        tries=tries,
    )


def _frames(answer: Response) -> Iterator[Frame]:
    """Cut a stream into frames. A large log frame comes out in the pieces in which it arrived."""
    buffer = b""
    while True:
        while (end := buffer.find(b"\n")) < 0:
            more = answer.read_some()
            if not more:
                return
            buffer += more
        line, buffer = buffer[:end], buffer[end + 1 :]
        try:
            head = json.loads(line)
            kind, size = str(head["kind"]), int(head.get("size") or 0)
        except (ValueError, KeyError, TypeError):
            raise HttpProtocolError("the stream of the job cannot be read") from None
        if not size:
            yield Frame(kind, head)
            continue
        offset = number(head, "offset") or 0
        while size:
            if not buffer:
                buffer = answer.read_some()
                if not buffer:
                    return
            piece, buffer = buffer[:size], buffer[size:]
            yield Frame(kind, {**head, "offset": offset, "size": len(piece)}, piece)
            offset += len(piece)
            size -= len(piece)


class LogPosition:
    """How far a log has been handed out: where to go on once a connection breaks."""

    def __init__(self, begins: int | None):
        """``begins``: where its first piece should stand; None where only the cluster knows."""
        self._attempt = ""
        self._offset = begins

    def pass_over(self, frame: Frame) -> int:
        """How many bytes before this piece there are no more."""
        attempt = f"{text(frame.head, 'attempt')}.{text(frame.head, 'taskAttempt')}"
        offset = number(frame.head, "offset") or 0
        expected = self._offset if self._attempt in ("", attempt) else 0
        self._attempt, self._offset = attempt, offset + len(frame.data)
        return 0 if expected is None else max(0, offset - expected)

    def __str__(self) -> str:
        return f"{self._attempt}:{self._offset}" if self._attempt else ""


def _marker(frame: Frame, count: int) -> Frame:
    """What stands for a part of the log that the cluster had to drop."""
    data = f"[{count} bytes of older output were dropped]\n".encode()
    return Frame("log", {**frame.head, "size": len(data)}, data)


def _gone(cluster: ClusterClient, error: OSError) -> ConnectionFailed:
    return connection_error(error, cluster.transport.where, STREAM_TIMEOUT_S)
