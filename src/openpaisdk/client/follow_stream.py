"""Following a job over one streaming connection that resumes after a break: no byte lost, none twice.

The stream is a sequence of frames: one line of JSON, followed by ``size`` raw bytes if the line has ``size``.
"""

from __future__ import annotations

import json
import time

from openpaisdk.client.http_errors import connection_error
from openpaisdk.client.models import number, text
from paiprotocol.errors import ConnectionFailed, Unavailable
from pairuntime.transport.http1 import DEAD_PEER_TIMEOUT_S, HttpProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.client.cluster_client import ClusterClient
    from pairuntime.transport.http1 import Response

STREAM_TIMEOUT_S = 45.0
"""The cluster sends a frame at least every 15 seconds; after three missing ones it hangs. A dead network is
noticed earlier, by ``http1.detect_dead_peer``."""
RECONNECT_TIMEOUT_S = 600.0
"""How long to try to reconnect to a cluster that became unreachable."""
MAX_HEAD_BYTES = 16 << 20
"""First line of a frame; its data follow."""
NOTICE_AFTER_S = 1.0
"""A shorter interruption is not reported."""
_USEFUL_STREAM_S = 1.0
"""A shorter stream without a log is useless: the next one is not opened at once."""
MAX_USELESS_STREAMS = 1200
"""Ten minutes of them."""
NO_LOG = "none"
FIRST_ATTEMPT = "0.0"
"""First attempt of the job, and of the task in it."""
RECONNECT_DELAYS_S = (0.02, 0.05, 0.1, 0.2, 0.5)


class Frame:
    """One frame. ``kind`` is state, event, log or end; the client adds lost (connection lost) and back."""

    __slots__ = ("data", "head", "kind")

    def __init__(self, kind: str, head: dict[str, object], data: bytes = b""):
        self.kind = kind
        self.head = head
        self.data = data


class FollowRequest:
    """What to follow: job, task, stream (``NO_LOG``: states only) and how much of the existing log.

    Following begins with the latest attempt; with ``all_attempts`` with the first one. ``attempt``: only this
    one, by the numbers of the job's attempt and of the task's in it. ``times``: see `times_of`.
    """

    __slots__ = (
        "all_attempts",
        "attempt",
        "follow",
        "index",
        "name",
        "role",
        "stream",
        "tail",
        "times",
        "user",
    )

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
        all_attempts: bool = False,
        attempt: tuple[int, int] | None = None,
        times: bool = False,
    ):
        self.name = name
        self.user = user
        self.role = role
        self.index = index
        self.stream = stream
        self.tail = tail
        self.follow = follow
        self.all_attempts = all_attempts
        self.attempt = attempt
        self.times = times

    def for_task(self, role: str, index: int) -> FollowRequest:
        """The same request for one task."""
        return FollowRequest(
            self.name,
            self.user,
            role=role,
            index=index,
            stream=self.stream,
            tail=self.tail,
            follow=self.follow,
            all_attempts=self.all_attempts,
            attempt=self.attempt,
            times=self.times,
        )

    def for_attempt(self, attempt: tuple[int, int]) -> FollowRequest:
        """The same request for what one attempt has until now: later frames are not waited for."""
        chosen = self.for_task(self.role, self.index or 0)
        chosen.attempt, chosen.follow, chosen.all_attempts = attempt, False, False
        return chosen


def follow_stream(
    cluster: ClusterClient,
    request: FollowRequest,
    *,
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S,
    reconnect_delays_s: Sequence[float] = RECONNECT_DELAYS_S,
    notice_after_s: float = NOTICE_AFTER_S,
    max_useless_streams: int = MAX_USELESS_STREAMS,
) -> Iterator[Frame]:
    """Yield the frames of a job until it finishes; without ``follow`` only those that exist now."""
    first_attempt = FIRST_ATTEMPT if request.all_attempts else ""
    if request.attempt is not None:
        first_attempt = "{}.{}".format(*request.attempt)
    position = LogPosition(start=0 if request.tail is None else None, attempt=first_attempt)
    first = True
    lost_at = 0.0
    lost_reported = False
    attempts = 0
    # Streams, one after the other, that ended soon and without the job or a part of its log.
    useless = 0
    while True:
        opened_at = 0.0
        try:
            response = _open(cluster, request, position, tries=3 if first else 1)
            first, opened_at = False, time.monotonic()
            for frame in read_frames(response):
                if lost_reported:
                    yield Frame("back", {})
                lost_at, lost_reported = 0.0, False
                if frame.data or time.monotonic() - opened_at > _USEFUL_STREAM_S:
                    useless = attempts = 0
                if frame.kind == "log" and request.attempt not in (None, attempt_of(frame)):
                    cluster.transport.close()  # the rest is that of later attempts
                    return
                if frame.kind == "log" and (dropped := position.advance(frame)):
                    yield _marker(frame, dropped)
                if frame.kind != "ping":
                    yield frame
                if frame.kind == "end":
                    return
            if not request.follow:
                return  # the server has sent everything it has
        except (OSError, ConnectionFailed, Unavailable) as e:
            if isinstance(e, TimeoutError):
                lost_at = lost_at or time.monotonic() - DEAD_PEER_TIMEOUT_S  # nothing arrived for so long
            if first:
                raise (
                    e if isinstance(e, ConnectionFailed | Unavailable) else _connection_lost(cluster, e)
                ) from None
        cluster.transport.close()
        now = time.monotonic()
        lost_at = lost_at or now
        if now - lost_at > reconnect_timeout_s:
            raise ConnectionFailed(f"{cluster.transport.where} became unreachable and did not come back.")
        useless += 1 if opened_at else 0
        if useless > max_useless_streams:
            raise ConnectionFailed(f"{cluster.transport.where} ends the stream of the job, but not the job.")
        if not lost_reported and now - lost_at > notice_after_s:
            lost_reported = True
            yield Frame("lost", {})
        time.sleep(reconnect_delays_s[min(attempts, len(reconnect_delays_s) - 1)])
        attempts += 1
        cluster.transport.rediscover()


def _open(cluster: ClusterClient, request: FollowRequest, position: LogPosition, tries: int) -> Response:
    return cluster.transport.request(
        "GET",
        cluster.job_path(request.name, request.user) + "/follow",
        values={
            "role": request.role,
            "index": request.index,
            "stream": request.stream,
            "from": str(position),
            "tail": None if position.is_known else request.tail,
            "follow": "true" if request.follow else "false",
            "times": "true" if request.times else None,
        },
        timeout=STREAM_TIMEOUT_S,
        tries=tries,
    )


def read_frames(response: Response) -> Iterator[Frame]:
    """Split a stream into frames. A large log frame is yielded in the pieces in which it arrives."""
    buffer = b""
    while True:
        while (end := buffer.find(b"\n")) < 0:
            more = response.read_some()
            if not more:
                return
            buffer += more
            if len(buffer) > MAX_HEAD_BYTES:
                raise HttpProtocolError("the job stream is malformed")
        line, buffer = buffer[:end], buffer[end + 1 :]
        try:
            head = json.loads(line)
            kind, size = str(head["kind"]), head.get("size") or 0
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise HttpProtocolError("the job stream is malformed") from None
        if not isinstance(size, int) or size < 0:
            raise HttpProtocolError("the job stream is malformed")
        if not size:
            yield Frame(kind, head)
            continue
        offset = number(head, "offset") or 0
        while size:
            if not buffer:
                buffer = response.read_some()
                if not buffer:
                    return
            piece, buffer = buffer[:size], buffer[size:]
            yield Frame(kind, {**head, "offset": offset, "size": len(piece)}, piece)
            offset += len(piece)
            size -= len(piece)


def attempt_of(frame: Frame) -> tuple[int, int]:
    """Number of the job's attempt that a log frame is of, and of the task's in it."""
    return number(frame.head, "attempt") or 0, number(frame.head, "taskAttempt") or 0


def times_of(frame: Frame) -> list[tuple[int, int]] | None:
    """When the log of a frame was written; None: the cluster has not recorded it.

    Pairs of an offset and the time of the bytes up to the next pair, in milliseconds since 1970.
    """
    pairs = frame.head.get("times")
    if not isinstance(pairs, list):
        return None
    return [
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(type(value) is int for value in pair)
    ]


class LogPosition:
    """Position in a log up to which frames were yielded; a new connection resumes there."""

    def __init__(self, start: int | None, attempt: str = ""):
        """``start``: expected offset of the first frame; None if only the cluster knows it.

        ``attempt``: the job's and the task's; empty for the latest.
        """
        self._attempt = attempt
        self._offset = start

    @property
    def is_known(self) -> bool:
        """Whether the next offset is known: without a tail, or after the first frame."""
        return self._offset is not None

    def advance(self, frame: Frame) -> int:
        """Move past a frame; returns how many bytes before it the cluster has dropped."""
        attempt = f"{text(frame.head, 'attempt')}.{text(frame.head, 'taskAttempt')}"
        offset = number(frame.head, "offset") or 0
        expected = self._offset if self._attempt in ("", attempt) else 0
        self._attempt, self._offset = attempt, offset + len(frame.data)
        return 0 if expected is None else max(0, offset - expected)

    def __str__(self) -> str:
        return f"{self._attempt}:{self._offset or 0}" if self._attempt else ""


def _marker(frame: Frame, count: int) -> Frame:
    """Log frame with a marker for the part of the log that the cluster dropped."""
    data = f"[{count} bytes of older output were dropped]\n".encode()
    return Frame("log", {**frame.head, "size": len(data)}, data)


def _connection_lost(cluster: ClusterClient, error: OSError) -> ConnectionFailed:
    return connection_error(error, cluster.transport.where, STREAM_TIMEOUT_S)
