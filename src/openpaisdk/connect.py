"""Connection from an alias to a cluster client; starts the embedded cluster if it is the one selected."""

from __future__ import annotations

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.transport import CONNECTION_LOST, REST_SERVER, STREAM_LOST, TOKEN_REJECTED
from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterEntry, ClusterRegistry, require_jobs
from openpaisdk.config.paths import display_path, user_folder
from openpaisdk.config.task_cluster import TASK
from paiprotocol.errors import ConfigError, Unauthorized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client.transport import Renew
    from openpaisdk.embedded.handshake import Handshake


def open_cluster(
    alias: str = "", *, registry: ClusterRegistry | None = None, notify: Callable[[str], None] | None = None
) -> ClusterClient:
    """A client for the cluster a command uses: by alias, the selected one, or the embedded cluster.

    The embedded cluster is registered at first use.
    """
    registry = registry or ClusterRegistry.load()
    entry = registry.resolve(alias)
    if not entry.is_embedded:
        client = open_entry(entry)
        client.transport.on_slow_response = notify
        return client
    cluster = open_embedded(entry.alias, notify)
    cluster.transport.on_slow_response = notify
    _register(registry, entry)
    return cluster


def _register(registry: ClusterRegistry, entry: ClusterEntry) -> None:
    """List the embedded cluster among the user's clusters from its first use on."""
    if registry.find(entry.alias) is None:
        registry.put(entry)


def open_entry(entry: ClusterEntry) -> ClusterClient:
    """A client for an entry of the clusters file. Sends nothing yet."""
    require_jobs(entry)
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
        ca_file=entry.text("ca_file"),
    )
    cls = client_class(entry)
    return cls(entry.alias, endpoint, renew=token_renewer(entry, endpoint, cls))


def client_class(entry: ClusterEntry) -> type[ClusterClient]:
    """The client class for the cluster's API version."""
    if entry.raw.get("api") != 1:
        return ClusterClient
    from openpaisdk.client.v1_client import V1ClusterClient

    return V1ClusterClient


def token_renewer(entry: ClusterEntry, endpoint: Endpoint, cls: type[ClusterClient]) -> Renew | None:
    """Gets a new token with a stored password (``--store-password``, or a file of OpenPAI's SDK)."""
    if entry.raw.get("type") == TASK:
        return _end_of_task
    password = entry.text("password")
    if not password:
        return None

    def renew(reason: str, failed: Endpoint) -> Endpoint | None:
        if reason != TOKEN_REJECTED:
            return None
        endpoint.token = ""
        endpoint.token = cls(entry.alias, endpoint).login(endpoint.user, password)
        current = ClusterRegistry.load()
        if current.find(entry.alias):
            current.put(ClusterEntry({**entry.raw, "token": endpoint.token}))
        return endpoint

    return renew


def _end_of_task(reason: str, failed: Endpoint) -> Endpoint | None:
    if reason != TOKEN_REJECTED:
        return None
    raise Unauthorized(
        "The cluster does not accept this task's token any more: the job has ended or was stopped.",
        hint="A program that outlives its job needs a token of its own: pai add-cluster, and -a ALIAS.",
    )


def open_embedded(
    alias: str, notify: Callable[[str], None] | None = None, settings: str = ""
) -> ClusterClient:
    """A client for the embedded cluster, started if needed. Its address may change, so it is rediscovered.

    ``settings``: the folder of the settings that it belongs to; by default the present one.
    """
    from openpaisdk.embedded.ensure_running import ensure_running, rediscover

    settings = settings or user_folder()
    _require_same_home(settings)
    server = ensure_running(notify=notify)

    def renew(reason: str, failed: Endpoint) -> Endpoint | None:
        _require_same_home(settings)
        # The address of this request, not the last known one: another thread may have found the new server.
        address = str(failed.address) if reason == CONNECTION_LOST else ""
        handshake = rediscover() if reason == STREAM_LOST else ensure_running(notify=notify, failed=address)
        return endpoint_of(handshake) if handshake else None

    return ClusterClient(alias, endpoint_of(server), renew=renew, is_embedded=True)


def _require_same_home(settings: str) -> None:
    """Refuse to take the embedded cluster of another home for this one, and to start one there."""
    if user_folder() != settings:
        raise ConfigError(
            f"HOME has changed: the embedded cluster of {display_path(settings)} cannot be reached with it.",
            hint="Set HOME back, or open the cluster again for the one of the present HOME.",
        )


def endpoint_of(server: Handshake) -> Endpoint:
    return Endpoint(server.url, server.user, server.token)


class ClusterConnection:
    """One cluster, as one user, for programs with threads: each thread has a client of its own."""

    def __init__(self, entry: ClusterEntry):
        import threading  # most commands do not need it

        self._probe_lock = threading.Lock()
        # Folder of the settings with which an embedded cluster was first opened.
        self._settings = ""
        self._use(entry)

    def _use(self, entry: ClusterEntry) -> None:
        """Connect as the entry says from now on."""
        import threading

        self.entry = entry
        self._threads = threading.local()

    @property
    def alias(self) -> str:
        return self.entry.alias

    @property
    def client(self) -> ClusterClient:
        """The REST client of this thread, created at first use."""
        client: ClusterClient | None = getattr(self._threads, "client", None)
        if client is None:
            client = self._threads.client = self.open_client()
        return client

    def open_client(self) -> ClusterClient:
        """A client with a connection of its own, for a stream that occupies it."""
        if self.entry.is_embedded:
            # Each thread has a client: they must not find different clusters when the program changes HOME.
            is_first, self._settings = not self._settings, self._settings or user_folder()
            client = open_embedded(self.entry.alias, settings=self._settings)
            if is_first and self.alias == EMBEDDED_ALIAS:
                _register(ClusterRegistry.load(), self.entry)
            return client
        with self._probe_lock:
            if "info" not in self.entry.raw:  # not from the clusters file: detect how to connect
                from openpaisdk.client.discovery import connection_settings, probe_cluster

                text, verify = self.entry.text, self.entry.raw.get("verify_tls") is not False
                cluster, info = probe_cluster(
                    self.alias, text("pai_uri"), text("user"), verify, text("ca_file")
                )
                self.entry = ClusterEntry({**self.entry.raw, **connection_settings(cluster, info)})
        return open_entry(self.entry)

    def __repr__(self) -> str:
        user = self.entry.text("user")
        return f"<Cluster {self.alias} {self.entry.shown_address or '?'}{f' as {user}' if user else ''}>"
