"""Search in the log of a task: the cluster looks for the text, only the lines that contain it are sent."""

from __future__ import annotations

from openpaisdk.client.follow_stream import STREAM_TIMEOUT_S, Frame, read_frames
from openpaisdk.client.http_errors import NO_API, connection_error, is_missing_job
from openpaisdk.client.models import number, text
from paiprotocol.errors import NotFound, PaiError
from pairuntime.transport.http1 import HttpProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.follow_stream import FollowRequest

LINES_PER_REQUEST = 1000
"""What clusters accept."""


def search_log(cluster: ClusterClient, request: FollowRequest, wanted: str) -> Iterator[Frame]:
    """Yield a log frame for each line that contains the text, in upper or lower case. A long line is cut.

    The lines are those of the task's latest attempt, or of the one that the request names.
    """
    values: dict[str, object] = {
        "text": wanted,
        "role": request.role,
        "index": request.index,
        "stream": request.stream,
        "limit": LINES_PER_REQUEST,
    }
    if request.attempt is not None:
        values["attempt"], values["taskAttempt"] = request.attempt
    is_complete = False
    while not is_complete:
        try:
            response = cluster.transport.request(
                "GET",
                cluster.job_path(request.name, request.user) + "/log-search",
                values=values,
                timeout=STREAM_TIMEOUT_S,
            )
            end = None
            for frame in read_frames(response):
                if frame.kind == "hit":
                    # A retry of the task must not continue the search in another log.
                    values["attempt"], values["taskAttempt"] = (
                        number(frame.head, "attempt"),
                        number(frame.head, "taskAttempt"),
                    )
                    yield Frame("log", frame.head, text(frame.head, "line").encode() + b"\n")
                elif frame.kind == "end":
                    end = frame
            if end is None:
                raise HttpProtocolError("the search ended early")
        except OSError as e:
            raise connection_error(e, cluster.transport.where, STREAM_TIMEOUT_S) from None
        except NotFound as e:
            if e.code == NO_API:
                raise PaiError(
                    f"The cluster {cluster.alias} cannot search logs.",
                    hint=f"Use: pai logs {request.name} | grep TEXT",
                ) from None
            raise (
                cluster.no_job(cluster.short_name(request.name, request.user)) if is_missing_job(e) else e
            ) from None
        values["from"] = number(end.head, "offset")
        is_complete = end.head.get("isComplete") is True
