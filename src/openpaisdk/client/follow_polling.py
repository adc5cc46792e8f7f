"""Following a job on a cluster that cannot stream: its state and its log are asked for, again and again.

Real OpenPAI clusters keep logs behind their log manager, as files that answer byte ranges. The frames that
come out are those of ``following``.
"""

from __future__ import annotations

import json
import time

from openpaisdk.client.follow_stream import NO_LOG, RECONNECT_TIMEOUT_S, FollowRequest, Frame
from openpaisdk.client.models import JobStatus, Task
from openpaisdk.errors import ConnectionFailed, NotFound, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client.cluster_client import ClusterClient

POLL_INTERVALS_S = (0.5, 1.0, 2.0, 5.0)


class _LogCursor:
    """One task attempt's log file, read from where the last look ended."""

    def __init__(self) -> None:
        self.attempt = (-1, -1)
        self.offset = 0
        self.files: dict[str, int] = {}


def follow_by_polling(
    cluster: ClusterClient, request: FollowRequest, *, reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
) -> Iterator[Frame]:
    """The frames of a job until it is over."""
    reader = _LogCursor()
    state = ""
    quiet = 0
    lost_at = 0.0
    while True:
        try:
            job = cluster.job(request.name, request.user)
            lost_at = 0.0
        except (ConnectionFailed, Unavailable):
            lost_at = lost_at or time.monotonic()
            if not state or time.monotonic() - lost_at > reconnect_timeout_s:
                raise
            time.sleep(POLL_INTERVALS_S[-1])
            continue
        if job.state != state:
            state, quiet = job.state, 0
            yield Frame("state", {"state": state, "attempt": job.attempt, "exitCode": job.exit_code})
        task = _task(job, request) if request.stream != NO_LOG else None
        for frame in _new_bytes(cluster, job, task, request, reader) if task else ():
            quiet = 0
            yield frame
        if job.is_finished:
            yield Frame("end", {"state": state, "exitCode": job.exit_code})
            return
        if not request.follow:
            return
        time.sleep(POLL_INTERVALS_S[min(quiet, len(POLL_INTERVALS_S) - 1)])
        quiet += 1


def _task(job: JobStatus, wanted: FollowRequest) -> Task | None:
    for task in job.tasks:
        if wanted.role in ("", task.role) and (wanted.index or 0) == task.index:
            return task
    if job.is_finished and (wanted.role or wanted.index):
        raise NotFound(f"The job {job.name} has no task {wanted.role or 'of any role'}[{wanted.index or 0}].")
    return None


def _new_bytes(
    cluster: ClusterClient, job: JobStatus, task: Task, wanted: FollowRequest, reader: _LogCursor
) -> Iterator[Frame]:
    if "://" in task.log:
        from openpaisdk.client.yarn_logs import read_new_log_bytes

        if reader.attempt != (job.attempt, task.attempt):
            reader.attempt, reader.files = (job.attempt, task.attempt), {}
        yield from read_new_log_bytes(cluster, task, wanted, reader.files)
        return
    if reader.attempt != (job.attempt, task.attempt):
        reader.attempt, reader.offset = (job.attempt, task.attempt), 0
        first = True
    else:
        first = False
    path = task.log
    if not path.startswith("/api/"):
        path = (
            f"{cluster.job_path(wanted.name, wanted.user)}/attempts/{job.attempt}/taskRoles/{task.role}"
            f"/taskIndex/{task.index}/attempts/{task.attempt}/logs"
        )
    uri = _location(cluster, path, wanted.stream)
    if not uri:
        return
    answer = cluster.transport.request(
        "GET", uri, headers={"Range": f"bytes={reader.offset}-"}, at_root=True, accept=(404, 416)
    )
    skip = reader.offset if answer.status == 200 else 0
    if answer.status in (404, 416):
        answer.read()
        return
    head = {"role": task.role, "index": task.index, "attempt": job.attempt, "taskAttempt": task.attempt}
    if first and wanted.tail is not None:
        data = answer.read()
        kept = b"".join(data.splitlines(keepends=True)[-wanted.tail :]) if wanted.tail else b""
        reader.offset = len(data)
        if kept:
            yield Frame("log", {**head, "offset": reader.offset - len(kept), "size": len(kept)}, kept)
        return
    while data := answer.read_some():
        piece, skip = data[skip:], max(0, skip - len(data))
        if piece:
            at, reader.offset = reader.offset, reader.offset + len(piece)
            yield Frame("log", {**head, "offset": at, "size": len(piece)}, piece)


def _location(cluster: ClusterClient, path: str, stream: str) -> str:
    """Where the log of a stream lies; empty while there is none."""
    try:
        body = cluster.transport.request("GET", path).read()
    except NotFound:
        return ""
    found = json.loads(body).get("locations") or []
    named = {str(item.get("name")): str(item.get("uri")) for item in found if isinstance(item, dict)}
    return named.get(stream) or (named.get("stdout", "") if stream == "all" else "")
