"""A cluster with a storage and three people, and the smallest WebHDFS client."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from served import Cluster, Reply

PEOPLE = ("admin", "alice", "bob")
PASSWORD = "a good password"
TEAM = "vision"


@dataclass
class StorageCluster(Cluster):
    tokens: dict[str, str] = field(default_factory=dict)

    def log_in(self, username: str) -> str:
        who = {"username": username, "password": PASSWORD}
        reply = self.ask("POST", "/api/v2/authn/basic/login", who, token=None)
        assert reply.status == 200, reply.text
        return str(reply.json()["token"])

    def admin_token(self) -> str:
        return self.tokens["admin"]

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)

    def person(self, name: str) -> Web:
        return Web(self, self.tokens[name])


@dataclass
class Web:
    """Somebody with a token."""

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
        where = f"{self.prefix}{quote(path)}?{query}"
        return self.cluster.ask(method, where, body, headers, token=self.token)

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
        reply = self.get("OPEN", path, **parameters)
        assert reply.status == 200, reply.text
        return reply.body

    def names(self, path: str) -> list[str]:
        return [one["pathSuffix"] for one in self.json("LISTSTATUS", path)["FileStatuses"]["FileStatus"]]


def exception(reply: Reply) -> tuple[int, str]:
    """The status and the Java class of a refusal."""
    said = reply.json()["RemoteException"]
    assert said["javaClassName"].replace("$", ".").endswith("." + said["exception"])
    assert said["message"]
    return reply.status, said["exception"]
