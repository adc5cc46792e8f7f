"""Following a job by polling its state and log, for clusters that cannot stream.

OpenPAI serves logs through its log manager, as files that support byte ranges. The frames are the same as
those of ``follow_stream``.
"""

from __future__ import annotations

import json
import time

from openpaisdk.client.follow_stream import NO_LOG, RECONNECT_TIMEOUT_S, FollowRequest, Frame
from openpaisdk.client.models import JobStatus, Task
from paiprotocol.errors import ConnectionFailed, NotFound, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.client.cluster_client import ClusterClient

POLL_INTERVALS_S = (0.5, 1.0, 2.0, 5.0)


class _LogCursor:
    """Read position in the log files of one task attempt."""

    def __init__(self) -> None:
        self.attempt = (-1, -1)
        self.offset = 0
        self.files: dict[str, int] = {}


def follow_by_polling(
    cluster: ClusterClient,
    request: FollowRequest,
    *,
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S,
    poll_intervals_s: Sequence[float] = POLL_INTERVALS_S,
) -> Iterator[Frame]:
    """Yield the frames of a job until it finishes."""
    if request.attempt is not None:
        yield from _attempt_frames(cluster, request, request.attempt)
        return
    cursor = _LogCursor()
    state = ""
    idle_polls = 0
    lost_at = 0.0
    while True:
        try:
            job = cluster.job(request.name, request.user)
            lost_at = 0.0
        except (ConnectionFailed, Unavailable):
            lost_at = lost_at or time.monotonic()
            if not state or time.monotonic() - lost_at > reconnect_timeout_s:
                raise
            time.sleep(poll_intervals_s[-1])
            continue
        if job.state != state:
            state, idle_polls = job.state, 0
            yield Frame("state", {"state": state, "attempt": job.attempt, "exitCode": job.exit_code})
        task = _find_task(job, request) if request.stream != NO_LOG else None
        for frame in _new_log_frames(cluster, job, task, request, cursor) if task else ():
            idle_polls = 0
            yield frame
        if job.is_finished:
            yield Frame("end", {"state": state, "exitCode": job.exit_code})
            return
        if not request.follow:
            return
        time.sleep(poll_intervals_s[min(idle_polls, len(poll_intervals_s) - 1)])
        idle_polls += 1


def _attempt_frames(
    cluster: ClusterClient, request: FollowRequest, attempt: tuple[int, int]
) -> Iterator[Frame]:
    """The log of one attempt as it is now."""
    job = cluster.job_attempt(request.name, request.user, attempt[0])
    if task := _find_task(job, request):
        if "://" not in task.log:
            task.log = ""  # that of the latest attempt in this one of the job
        job.attempt, task.attempt = attempt
        yield from _new_log_frames(cluster, job, task, request, _LogCursor())


def _find_task(job: JobStatus, request: FollowRequest) -> Task | None:
    for task in job.tasks:
        if request.role in ("", task.role) and (request.index or 0) == task.index:
            return task
    if job.is_finished and (request.role or request.index):
        raise NotFound(
            f"The job {job.name} has no task {request.role or 'of any role'}[{request.index or 0}]."
        )
    return None


def _new_log_frames(
    cluster: ClusterClient, job: JobStatus, task: Task, request: FollowRequest, cursor: _LogCursor
) -> Iterator[Frame]:
    if "://" in task.log:
        from openpaisdk.client.yarn_logs import read_new_log_bytes

        if cursor.attempt != (job.attempt, task.attempt):
            cursor.attempt, cursor.files = (job.attempt, task.attempt), {}
        yield from read_new_log_bytes(cluster, task, request, cursor.files)
        return
    if cursor.attempt != (job.attempt, task.attempt):
        cursor.attempt, cursor.offset = (job.attempt, task.attempt), 0
        first = True
    else:
        first = False
    path = task.log
    if not path.startswith("/api/"):
        path = (
            f"{cluster.job_path(request.name, request.user)}/attempts/{job.attempt}/taskRoles/{task.role}"
            f"/taskIndex/{task.index}/attempts/{task.attempt}/logs"
        )
    uri = _location(cluster, path, request.stream)
    if not uri:
        return
    response = cluster.transport.request(
        "GET", uri, headers={"Range": f"bytes={cursor.offset}-"}, at_root=True, accept=(404, 416)
    )
    skip = cursor.offset if response.status == 200 else 0
    if response.status in (404, 416):
        response.read()
        return
    head = {"role": task.role, "index": task.index, "attempt": job.attempt, "taskAttempt": task.attempt}
    if first and request.tail is not None:
        data = response.read()
        tail = b"".join(data.splitlines(keepends=True)[-request.tail :]) if request.tail else b""
        cursor.offset = len(data)
        if tail:
            yield Frame("log", {**head, "offset": cursor.offset - len(tail), "size": len(tail)}, tail)
        return
    while data := response.read_some():
        chunk, skip = data[skip:], max(0, skip - len(data))
        if chunk:
            at, cursor.offset = cursor.offset, cursor.offset + len(chunk)
            yield Frame("log", {**head, "offset": at, "size": len(chunk)}, chunk)


def _location(cluster: ClusterClient, path: str, stream: str) -> str:
    """URI of a stream's log; empty while there is none."""
    try:
        body = cluster.transport.request("GET", path, whole=True).read()
    except NotFound:
        return ""
    locations = json.loads(body).get("locations") or []
    uris = {str(item.get("name")): str(item.get("uri")) for item in locations if isinstance(item, dict)}
    return uris.get(stream) or (uris.get("stdout", "") if stream == "all" else "")
