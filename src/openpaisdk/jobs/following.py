"""What happens to a job, from a cluster that streams or from one that must be asked again and again."""

from __future__ import annotations

from openpaisdk.client.failures import NO_API
from openpaisdk.client.following import Wanted, follow
from openpaisdk.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from openpaisdk.client import Cluster
    from openpaisdk.client.following import Frame


def frames(cluster: Cluster, wanted: Wanted) -> Iterator[Frame]:
    """States, events and log of a job, as they come."""
    try:
        yield from follow(cluster, wanted)
    except NotFound as e:
        if e.code == NO_API:
            from openpaisdk.client.classic import follow_classic

            yield from follow_classic(cluster, wanted)
            return
        if e.code != NotFound.code:
            raise
        raise cluster.no_job(wanted.name) from None
