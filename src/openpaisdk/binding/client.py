"""Client for scripts, and for programs inside a job that call their own cluster."""

from __future__ import annotations

import os
from pathlib import Path

from openpaisdk.binding.cluster import Cluster

REST_SERVER = "PAI_REST_SERVER_URI"
TOKEN = "PAI_USER_TOKEN"
RUNTIME = "PAI_RUNTIME_DIR"
AUTHORITY = "authority.pem"
OWN_CLUSTER_ALIAS = "here"
USERS = ("PAI_USER_NAME", "PAI_USERNAME")


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
        is_inside_job = not pai_uri and not cluster_alias and bool(os.environ.get(REST_SERVER))
        if is_inside_job:
            pai_uri = os.environ[REST_SERVER]
            user = user or next((os.environ[name] for name in USERS if os.environ.get(name)), "")
            token = token or ("" if password else os.environ.get(TOKEN, ""))
            cluster_alias = OWN_CLUSTER_ALIAS
            authority = Path(os.environ.get(RUNTIME, ""), AUTHORITY)
            ca_file = ca_file or (str(authority) if authority.is_file() else "")
        super().__init__(cluster_alias, pai_uri, user, password, token, verify=verify, ca_file=ca_file)
        if token and not pai_uri:
            self.login(token)
