"""Following a job: over one stream if the cluster supports it, else by polling."""

from __future__ import annotations

from openpaisdk.client.follow_stream import FollowRequest, follow_stream
from openpaisdk.client.http_errors import NO_API, is_missing_job
from openpaisdk.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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
        raise cluster.no_job(request.name) from None
