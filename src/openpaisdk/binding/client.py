"""Client for scripts, and for programs inside a job that call their own cluster."""

from __future__ import annotations

from openpaisdk.binding.cluster import Cluster
from openpaisdk.config.task_cluster import task_cluster_settings


class OpenPAIClient(Cluster):
    """A cluster: from arguments; inside a job from ``os.environ``; else the one that commands use.

    ``OpenPAIClient("http://pai.example.org", "alice", token="...")``, ``OpenPAIClient().jobs()``
    """

    def __init__(
        self,
        pai_uri: str = "",
        user: str = "",
        password: str = "",
        token: str = "",
        *,
        cluster_alias: str = "",
        verify: bool = True,
        ca_file: str = "",
    ):
        # An alias means an entry of the clusters file, also inside a job.
        own = None if pai_uri or cluster_alias else task_cluster_settings()
        if own is not None:
            pai_uri, cluster_alias = str(own["pai_uri"]), str(own["cluster_alias"])
            user = user or str(own["user"])
            token = token or ("" if password else str(own["token"]))
            ca_file = ca_file or str(own.get("ca_file", ""))
        kind = {key: own[key] for key in ("type", "embedded") if key in own} if own else {}
        super().__init__(
            cluster_alias, pai_uri, user, password, token, verify=verify, ca_file=ca_file, **kind
        )
        if token and not pai_uri:
            self.login(token)
