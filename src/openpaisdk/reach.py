"""From the name of a cluster to one that answers. The embedded cluster is started where it is meant."""

from __future__ import annotations

from openpaisdk.client import Cluster, Endpoint
from openpaisdk.client.transport import FOLLOWING, GONE, REST_SERVER, TOKEN_REFUSED
from openpaisdk.config.clusters import ClusterBook, ClusterEntry
from openpaisdk.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client.transport import Renew
    from openpaisdk.local.handshake import Handshake


def open_cluster(
    alias: str = "", *, book: ClusterBook | None = None, tell: Callable[[str], None] | None = None
) -> Cluster:
    """The cluster a command means. With none configured that is the one inside, registered at first use."""
    book = book or ClusterBook.load()
    entry = book.choose(alias)
    if not entry.is_embedded:
        far = open_entry(entry)
        far.transport.notice = tell
        return far
    cluster = open_embedded(entry.alias, tell)
    cluster.transport.notice = tell
    if book.find(entry.alias) is None:
        book.put(entry)
    return cluster


def open_entry(entry: ClusterEntry) -> Cluster:
    """A cluster from its entry in the clusters file. Nothing is sent yet."""
    uri = entry.text("pai_uri")
    if not uri:
        raise ConfigError(
            f"The cluster {entry.alias} has no pai_uri.", hint="Add it again with pai add-cluster."
        )
    rest = entry.raw.get("rest_path")
    endpoint = Endpoint(
        uri,
        entry.text("user"),
        entry.text("token"),
        rest_path=str(rest) if rest is not None else REST_SERVER,
        verify=entry.raw.get("verify_tls") is not False,
        authority_file=entry.text("ca_file"),
    )
    kind = _kind(entry)
    return kind(entry.alias, endpoint, renew=_renewing(entry, endpoint, kind))


def _kind(entry: ClusterEntry) -> type[Cluster]:
    """The first generation of clusters is asked in its own words."""
    if entry.raw.get("api") != 1:
        return Cluster
    from openpaisdk.client.older import OlderCluster

    return OlderCluster


def _renewing(entry: ClusterEntry, endpoint: Endpoint, kind: type[Cluster]) -> Renew | None:
    """Where a password is kept (people's own wish, or a file of an older SDK), it brings a new token."""
    password = entry.text("password")
    if not password:
        return None

    def renew(why: str, failed: Endpoint) -> Endpoint | None:
        if why != TOKEN_REFUSED:
            return None
        endpoint.token = ""
        endpoint.token = kind(entry.alias, endpoint).login(endpoint.user, password)
        book = ClusterBook.load()
        if book.find(entry.alias):
            book.put(ClusterEntry({**entry.raw, "token": endpoint.token}))
        return endpoint

    return renew


def open_embedded(alias: str, tell: Callable[[str], None] | None = None) -> Cluster:
    """The cluster of this machine, running. Its address may change under us, so it can be found again."""
    from openpaisdk.local.ready import again, ready

    now = ready(tell=tell)

    def renew(why: str, failed: Endpoint) -> Endpoint | None:
        # Where we asked, not where it was last: others may have found the new one before us.
        gone = str(failed.address) if why == GONE else ""
        found = again() if why == FOLLOWING else ready(tell=tell, failed=gone)
        return endpoint_of(found) if found else None

    return Cluster(alias, endpoint_of(now), renew=renew, is_embedded=True)


def endpoint_of(found: Handshake) -> Endpoint:
    return Endpoint(found.url, found.user, found.token)
