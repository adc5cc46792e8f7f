"""Cluster with a storage and three users, and a minimal WebHDFS client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from paicluster.store import Store, groups
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, Reply

USERS = ("admin", "alice", "bob")
PASSWORD = "a good password"
TEAM = "vision"


@dataclass
class StorageCluster(Cluster):
    tokens: dict[str, str] = field(default_factory=dict)

    def log_in(self, username: str) -> str:
        credentials = {"username": username, "password": PASSWORD}
        reply = self.ask("POST", "/api/v2/authn/basic/login", credentials, token=None)
        assert reply.status == 200, reply.text
        return str(reply.json()["token"])

    def admin_token(self) -> str:
        return self.tokens["admin"]

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)

    def client(self, name: str) -> WebHdfsClient:
        return WebHdfsClient(self, self.tokens[name])


@dataclass
class WebHdfsClient:
    """WebHDFS client with a token."""

    cluster: StorageCluster
    token: str | None
    prefix: str = "/webhdfs/v1"

    def ask(
        self,
        method: str,
        op: str,
        path: str,
        body: bytes | None = None,
        headers: Any = None,
        **parameters: Any,
    ) -> Reply:
        query = urlencode(
            {"op": op, **{name.replace("__", "."): value for name, value in parameters.items()}}
        )
        url_path = f"{self.prefix}{quote(path)}?{query}"
        return self.cluster.ask(method, url_path, body, headers, token=self.token)

    def get(self, op: str, path: str, **parameters: Any) -> Reply:
        return self.ask("GET", op, path, **parameters)

    def json(self, op: str, path: str, **parameters: Any) -> Any:
        reply = self.get(op, path, **parameters)
        assert reply.status == 200, reply.text
        return reply.json()

    def put(self, op: str, path: str, **parameters: Any) -> Reply:
        return self.ask("PUT", op, path, **parameters)

    def write(self, path: str, data: bytes, **parameters: Any) -> None:
        reply = self.ask("PUT", "CREATE", path, data, data="true", **parameters)
        assert reply.status == 201, reply.text

    def read(self, path: str, **parameters: Any) -> bytes:
        reply = self.get("OPEN", path, data="true", **parameters)
        assert reply.status == 200, reply.text
        return reply.body

    def names(self, path: str) -> list[str]:
        return [entry["pathSuffix"] for entry in self.json("LISTSTATUS", path)["FileStatuses"]["FileStatus"]]


def exception(reply: Reply) -> tuple[int, str]:
    """Status and Java class of an error response."""
    error = reply.json()["RemoteException"]
    assert error["javaClassName"].replace("$", ".").endswith("." + error["exception"])
    assert error["message"]
    return reply.status, error["exception"]


def prepare_home(home: Path) -> None:
    prepare_database(home, USERS, admins=("admin",), password=PASSWORD)
    store = Store.open(home / "cluster.db")
    store.write_sync(lambda conn: groups.add_group(conn, TEAM))
    for user in ("alice", "bob"):
        store.write_sync(lambda conn, u=user: groups.add_member(conn, u, TEAM))
    store.close()


def start_cluster(home: Path, *options: str) -> StorageCluster:
    limits = ("--cpus", "2", "--memory-mb", "512", "--gpus", "0")
    running = StorageCluster(home, ("--allow-shared-account", *limits, *options))
    running.start()
    running.tokens = {user: running.log_in(user) for user in USERS}
    running.user, running.token = "alice", running.tokens["alice"]
    for user in USERS:
        running.client(user).json("GETHOMEDIRECTORY", "/")
    return running


@pytest.fixture(scope="session", name="cluster")
def storage_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageCluster]:
    home = tmp_path_factory.mktemp("webhdfs") / "home"
    prepare_home(home)
    running = start_cluster(home)
    yield running
    running.close()


@pytest.fixture(name="alice")
def alice_fixture(cluster: StorageCluster) -> WebHdfsClient:
    return cluster.client("alice")
