"""Files of a cluster, for tests of the files page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from support.team_cluster import TeamCluster

UPLOAD = "input[type=file]"
MIB = 1 << 20


def put(cluster: TeamCluster, path: str, data: bytes, user: str = "alice") -> None:
    address = f"/webhdfs/v1{quote(path)}?op=CREATE&data=true&overwrite=true"
    created = cluster.ask("PUT", address, data, token=cluster.tokens[user])
    assert created.status == 201, created.text


def at(folder: str) -> str:
    return f"/files/home{quote(folder)}"


def storage_path(cluster: TeamCluster, path: str) -> Path:
    found = [root / path.lstrip("/") for root in cluster.home.glob("storage*") if root.is_dir()]
    [existing] = [one for one in found if one.is_dir()]
    return existing
