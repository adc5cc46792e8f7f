"""From the name of a cluster to one that answers. The embedded cluster is started where it is meant."""

from __future__ import annotations

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.transport import CONNECTION_LOST, REST_SERVER, STREAM_LOST, TOKEN_REJECTED
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client.transport import Renew
    from openpaisdk.embedded.handshake import Handshake


def open_cluster(
    alias: str = "", *, book: ClusterRegistry | None = None, tell: Callable[[str], None] | None = None
) -> ClusterClient:
    """The cluster a command means. With none configured that is the one inside, registered at first use."""
    book = book or ClusterRegistry.load()
    entry = book.resolve(alias)
    if not entry.is_embedded:
        far = open_entry(entry)
        far.transport.on_slow_response = tell
        return far
    cluster = open_embedded(entry.alias, tell)
    cluster.transport.on_slow_response = tell
    if book.find(entry.alias) is None:
        book.put(entry)
    return cluster


def open_entry(entry: ClusterEntry) -> ClusterClient:
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
    kind = client_class(entry)
    return kind(entry.alias, endpoint, renew=token_renewer(entry, endpoint, kind))


def client_class(entry: ClusterEntry) -> type[ClusterClient]:
    """The first generation of clusters is asked in its own words."""
    if entry.raw.get("api") != 1:
        return ClusterClient
    from openpaisdk.client.v1_client import V1ClusterClient

    return V1ClusterClient


def token_renewer(entry: ClusterEntry, endpoint: Endpoint, kind: type[ClusterClient]) -> Renew | None:
    """Where a password is kept (people's own wish, or a file of an older SDK), it brings a new token."""
    password = entry.text("password")
    if not password:
        return None

    def renew(why: str, failed: Endpoint) -> Endpoint | None:
        if why != TOKEN_REJECTED:
            return None
        endpoint.token = ""
        endpoint.token = kind(entry.alias, endpoint).login(endpoint.user, password)
        book = ClusterRegistry.load()
        if book.find(entry.alias):
            book.put(ClusterEntry({**entry.raw, "token": endpoint.token}))
        return endpoint

    return renew


def open_embedded(alias: str, tell: Callable[[str], None] | None = None) -> ClusterClient:
    """The cluster of this machine, running. Its address may change under us, so it can be found again."""
    from openpaisdk.embedded.ensure_running import ensure_running, rediscover

    now = ensure_running(tell=tell)

    def renew(why: str, failed: Endpoint) -> Endpoint | None:
        # Where we asked, not where it was last: others may have found the new one before us.
        gone = str(failed.address) if why == CONNECTION_LOST else ""
        found = rediscover() if why == STREAM_LOST else ensure_running(tell=tell, failed=gone)
        return endpoint_of(found) if found else None

    return ClusterClient(alias, endpoint_of(now), renew=renew, is_embedded=True)


def endpoint_of(found: Handshake) -> Endpoint:
    return Endpoint(found.url, found.user, found.token)
