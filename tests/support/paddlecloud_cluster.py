"""Fixtures for PaddleCloud's dialect: clients of a running cluster, and packages on its storage."""

from __future__ import annotations

from support.paddlecloud_go_client import GoClient
from support.team_cluster import PASSWORD, TeamCluster


def go_client_of(cluster: TeamCluster, username: str, *, datacenter: str = "dc1") -> GoClient:
    client = GoClient(cluster.address, username, PASSWORD, datacenter)
    client.fetch_token()
    return client


def put_package(cluster: TeamCluster, name: str, user: str = "alice", **files: str) -> str:
    """Store the package of a job; files by name, with `_py` for `.py`. Returns its path in the cloud."""
    for file, text in (files or {"train_py": "print('trained')\n"}).items():
        path = f"/webhdfs/v1/user/{user}/jobs/{name}/{file.replace('_py', '.py')}"
        reply = cluster.ask(
            "PUT", f"{path}?op=CREATE&data=true&overwrite=true", text, token=cluster.tokens[user]
        )
        assert reply.status == 201, reply.text
    return f"/pfs/dc1/home/{user}/jobs/{name}"
