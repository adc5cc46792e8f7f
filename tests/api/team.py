"""A cluster with three people: what the tests of the API talk to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from served import Cluster

PASSWORD = "a good password"
PEOPLE = ("admin", "alice", "bob")


@dataclass
class TeamCluster(Cluster):
    """A cluster with people; requests without a token of their own are alice's."""

    tokens: dict[str, str] = field(default_factory=dict)

    def log_in(self, username: str) -> str:
        who = {"username": username, "password": PASSWORD}
        reply = self.ask("POST", "/api/v2/authn/basic/login", who, token=None)
        assert reply.status == 200, reply.text
        return str(reply.json()["token"])

    def admin_token(self) -> str:
        return self.tokens["admin"]
