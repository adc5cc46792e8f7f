"""Following a job: over one stream if the cluster supports it, else by polling; several tasks in parallel."""

from __future__ import annotations

from openpaisdk.client.follow_stream import FollowRequest, follow_stream
from openpaisdk.client.http_errors import NO_API, is_missing_job
from paiprotocol.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.follow_stream import Frame


def follow(cluster: ClusterClient, request: FollowRequest) -> Iterator[Frame]:
    """Yield state, event and log frames of a job as they occur."""
    try:
        yield from follow_stream(cluster, request)
    except NotFound as e:
        if e.code == NO_API:
            from openpaisdk.client.follow_polling import follow_by_polling

            yield from follow_by_polling(cluster, request)
            return
        if not is_missing_job(e):
            raise
        raise cluster.no_job(cluster.short_name(request.name, request.user)) from None


def log_text(cluster: ClusterClient, request: FollowRequest) -> str:
    """Text of the part of a log that the request selects."""
    data = b"".join(frame.data for frame in follow(cluster, request) if frame.kind == "log")
    return data.decode("utf-8", "replace")


def log_lines(cluster: ClusterClient, request: FollowRequest) -> Iterator[str]:
    """The lines of a task's log as they are written."""
    rest = b""
    for frame in follow(cluster, request):
        if frame.kind != "log":
            continue
        *lines, rest = (rest + frame.data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace") + "\n"
    if rest:
        yield rest.decode("utf-8", "replace")


MAX_BUFFERED_FRAMES = 256
INTERRUPT_INTERVAL_S = 0.5
"""How often a blocked reader returns to Python code: on Windows only then Ctrl-C has an effect."""


def follow_tasks(
    cluster: ClusterClient, requests: Sequence[FollowRequest]
) -> Iterator[tuple[FollowRequest, Frame]]:
    """Yield the frames of several tasks as they occur; ends when all have ended.

    Each task is followed by a thread over its own connection, which resumes by itself.
    """
    import queue
    import threading

    frames: queue.Queue[tuple[FollowRequest, Frame | BaseException | None]] = queue.Queue(MAX_BUFFERED_FRAMES)

    def run(request: FollowRequest, client: ClusterClient) -> None:
        end: BaseException | None = None
        try:
            for frame in follow(client, request):
                frames.put((request, frame))
        except BaseException as e:  # re-raised by the reader
            end = e
        frames.put((request, end))

    for request in requests:
        threading.Thread(target=run, args=(request, cluster.with_own_connection()), daemon=True).start()
    running = len(requests)
    while running:
        try:
            request, item = frames.get(timeout=INTERRUPT_INTERVAL_S)
        except queue.Empty:
            continue
        if item is None:
            running -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield request, item
