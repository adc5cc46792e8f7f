"""A cluster met for the first time, or again: who it is, which generation, a token, what it has for us."""

from __future__ import annotations

import os

from openpaisdk.client.cluster_client import ClusterClient
from openpaisdk.client.http_errors import NO_API
from openpaisdk.client.models import name_list
from openpaisdk.client.transport import REST_SERVER, Endpoint
from openpaisdk.errors import NotFound, PaiError, Unauthorized, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROBE = "/api/v2/jobs/protocolversion/config"
"""Every cluster that lists jobs in version 2 of the API knows this path, though never such a job."""


class Credentials:
    """A password, or a token, or someone to ask for a password."""

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
    alias: str, uri: str, credentials: Credentials, *, verify: bool = True, authority_file: str = ""
) -> dict[str, object]:
    """Ask the address who it is, log in, and give the entry for the clusters file.

    A password is exchanged for a token and left out, unless the credentials say to keep it.
    """
    try:
        return _join(
            alias, uri, credentials, verify, os.path.abspath(authority_file) if authority_file else ""
        )
    except PaiError as e:
        # It is in no list yet that could be looked at.
        hint = "Check the address." if "pai list-clusters" in e.hint else e.hint
        if "othing was changed" not in e.message + hint:
            hint = f"{hint} Nothing was changed.".lstrip()
        e.hint = hint
        e.__notes__ = [hint]
        raise


def _join(alias: str, uri: str, who: Credentials, verify: bool, ca: str) -> dict[str, object]:
    cluster, info = probe_cluster(alias, uri, who.user, verify, ca)
    endpoint = cluster.transport.endpoint
    raw: dict[str, object] = {"cluster_alias": alias, "pai_uri": str(endpoint.address), "user": who.user}
    raw["token"] = endpoint.token = _token(cluster, info, who)
    if who.keep_password:
        raw["password"] = who.password
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
    """How a cluster that was met is reached again, for its entry."""
    endpoint = cluster.transport.endpoint
    raw: dict[str, object] = {"info": dict(info)}
    if cluster.generation != 2:
        raw["api"] = cluster.generation
    if endpoint.rest_path != REST_SERVER and not endpoint.address.prefix.endswith(REST_SERVER):
        raw["rest_path"] = endpoint.rest_path
    return raw


def refresh(cluster: ClusterClient) -> dict[str, object]:
    """What a known cluster says of itself now, for its entry."""
    return {"info": cluster.info(), **fetch_cluster_info(cluster)}


def probe_cluster(
    alias: str, uri: str, user: str, verify: bool = True, ca: str = ""
) -> tuple[ClusterClient, dict[str, object]]:
    """Who answers at an address: behind OpenPAI's front door or without it, of either generation."""
    refused: PaiError | None = None
    for rest_path in (REST_SERVER, ""):
        endpoint = Endpoint(uri, user, rest_path=rest_path, verify=verify, authority_file=ca)
        cluster = ClusterClient(alias, endpoint)
        try:
            return cluster, cluster.info()
        except NotFound as e:
            refused = e
        from openpaisdk.client.v1_client import V1ClusterClient

        older = V1ClusterClient(alias, endpoint)
        try:
            info = older.info()
        except NotFound as e:
            refused = e
            continue
        return (cluster if _knows_version_2(cluster) else older), info
    raise PaiError(
        f"No OpenPAI cluster answers at {uri}.",
        hint="Give the address of its web page, or of its rest-server (http://HOST:9186).",
    ) from refused


def _knows_version_2(cluster: ClusterClient) -> bool:
    try:
        cluster.transport.request("GET", PROBE).read()
    except PaiError as e:
        return e.code != NO_API
    return True


def _token(cluster: ClusterClient, info: Mapping[str, object], who: Credentials) -> str:
    if who.token:
        return who.token
    if info.get("authnMethod") == "OIDC":
        raise UsageError(
            f"The cluster at {cluster.uri} knows no passwords: it logs in through another service.",
            hint="Make an application token on your profile page there, and give it with --token.",
        )
    if not who.password:
        who.password = who.prompt() if who.prompt else ""
    if not who.password:
        raise UsageError(f"The cluster {cluster.alias} needs a password or a token.")
    return cluster.login(who.user, who.password)


def fetch_cluster_info(cluster: ClusterClient) -> dict[str, object]:
    """Virtual clusters and storages; the question also proves that the token is good."""
    if cluster.generation == 1:
        # It lists virtual clusters to anybody; what it knows of a person it tells only with a token.
        mine = name_list(cluster.user_info(), "virtualCluster")
        found = mine or [vc.name for vc in cluster.virtual_clusters()]
    else:
        found = [vc.name for vc in cluster.virtual_clusters()]
    return {"virtual_clusters": found, "storages": cluster.storages()}
