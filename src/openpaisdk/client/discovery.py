"""Cluster discovery: probe an address for its API generation, log in, and fetch the cluster's description."""

from __future__ import annotations

import os

from openpaisdk.client.cluster_client import ClusterClient
from openpaisdk.client.http_errors import NO_API, tls_required
from openpaisdk.client.models import name_list
from openpaisdk.client.transport import REST_SERVER, Endpoint
from paiprotocol.errors import NotFound, PaiError, Unauthorized, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROBE = "/api/v2/jobs/protocolversion/config"
"""Every cluster that lists jobs in version 2 of the API has this route; a job of that name cannot exist."""


class Credentials:
    """A password, a token, or a function that prompts for a password."""

    __slots__ = ("keep_password", "password", "prompt", "token", "user")

    def __init__(
        self,
        user: str,
        *,
        password: str = "",
        token: str = "",
        prompt: Callable[[], str] | None = None,
        keep_password: bool = False,
    ):
        self.user = user
        self.password = password
        self.token = token
        self.prompt = prompt
        self.keep_password = keep_password


def register_cluster(
    alias: str, uri: str, credentials: Credentials, *, verify: bool = True, ca_file: str = ""
) -> dict[str, object]:
    """Probe the address, log in, and return the entry for the clusters file.

    A password is exchanged for a token and not stored, unless the credentials say to keep it.
    """
    try:
        return _register(alias, uri, credentials, verify, os.path.abspath(ca_file) if ca_file else "")
    except PaiError as e:
        # The cluster is not registered yet, so pai list-clusters would not show it.
        hint = "Check the address." if "pai list-clusters" in e.hint else e.hint
        if "othing was changed" not in e.message + hint:
            hint = f"{hint} Nothing was changed.".lstrip()
        e.hint = hint
        e.__notes__ = [hint]
        raise


def _register(alias: str, uri: str, credentials: Credentials, verify: bool, ca: str) -> dict[str, object]:
    try:
        cluster, info = probe_cluster(alias, uri, credentials.user, verify, ca)
    except PaiError:
        # A server that expects TLS resets the connection, or responds with an error of its own.
        from openpaisdk.client.tls_and_proxies import speaks_tls

        endpoint = Endpoint(uri)
        if endpoint.address.is_secure or not speaks_tls(endpoint.address):
            raise
        raise tls_required(f"The cluster {alias} at {endpoint.address}") from None
    endpoint = cluster.transport.endpoint
    raw: dict[str, object] = {
        "cluster_alias": alias,
        "pai_uri": str(endpoint.address),
        "user": credentials.user,
    }
    raw["token"] = endpoint.token = _token(cluster, info, credentials)
    if credentials.keep_password:
        raw["password"] = credentials.password
    raw.update(connection_settings(cluster, info))
    if not verify:
        raw["verify_tls"] = False
    if ca:
        raw["ca_file"] = ca
    try:
        raw.update(fetch_cluster_info(cluster))
    except Unauthorized as e:
        raise Unauthorized(e.message, code=e.code, hint="Nothing was changed.") from None
    return raw


def connection_settings(cluster: ClusterClient, info: Mapping[str, object]) -> dict[str, object]:
    """Settings for connecting to a probed cluster again, for its entry."""
    endpoint = cluster.transport.endpoint
    raw: dict[str, object] = {"info": dict(info)}
    if cluster.generation != 2:
        raw["api"] = cluster.generation
    if endpoint.rest_path != REST_SERVER and not endpoint.address.prefix.endswith(REST_SERVER):
        raw["rest_path"] = endpoint.rest_path
    return raw


def refresh(cluster: ClusterClient) -> dict[str, object]:
    """Current description of a registered cluster, for its entry."""
    return {"info": cluster.info(), **fetch_cluster_info(cluster)}


def probe_cluster(
    alias: str, uri: str, user: str, verify: bool = True, ca: str = ""
) -> tuple[ClusterClient, dict[str, object]]:
    """Find the API behind an address: under ``/rest-server`` or at the root, in either generation."""
    last_error: PaiError | None = None
    for rest_path in (REST_SERVER, ""):
        endpoint = Endpoint(uri, user, rest_path=rest_path, verify=verify, ca_file=ca)
        cluster = ClusterClient(alias, endpoint)
        try:
            return cluster, cluster.info()
        except NotFound as e:
            last_error = e
        from openpaisdk.client.v1_client import V1ClusterClient

        v1_cluster = V1ClusterClient(alias, endpoint)
        try:
            info = v1_cluster.info()
        except NotFound as e:
            last_error = e
            continue
        return (cluster if _has_api_v2(cluster) else v1_cluster), info
    raise PaiError(
        f"There is no OpenPAI cluster at {uri}.",
        hint="Use the address of its web page or of its rest-server (http://HOST:9186).",
    ) from last_error


def _has_api_v2(cluster: ClusterClient) -> bool:
    try:
        cluster.transport.request("GET", PROBE, whole=True)
    except PaiError as e:
        return e.code != NO_API
    return True


def _token(cluster: ClusterClient, info: Mapping[str, object], credentials: Credentials) -> str:
    if credentials.token:
        return credentials.token
    if info.get("authnMethod") == "OIDC":
        raise UsageError(
            f"The cluster at {cluster.uri} accepts no passwords: it uses single sign-on (OpenID Connect).",
            hint="Create an application token on your profile page there and pass it with --token.",
        )
    if not credentials.password:
        credentials.password = credentials.prompt() if credentials.prompt else ""
    if not credentials.password:
        raise UsageError(f"The cluster {cluster.alias} needs a password or a token.")
    return cluster.login(credentials.user, credentials.password)


def fetch_cluster_info(cluster: ClusterClient) -> dict[str, object]:
    """Fetch virtual clusters and storages; this also verifies the token."""
    if cluster.generation == 1:
        # Version 1 lists virtual clusters without a token; only the user's profile needs one.
        own = name_list(cluster.user_info(), "virtualCluster")
        virtual_clusters = own or [vc.name for vc in cluster.virtual_clusters()]
    else:
        virtual_clusters = [vc.name for vc in cluster.usable_virtual_clusters()]
    return {"virtual_clusters": virtual_clusters, "storages": cluster.storages()}
