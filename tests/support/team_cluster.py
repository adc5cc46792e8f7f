"""A cluster with three people: what the tests of the API talk to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

from served import Cluster, job

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

    def have_a_long_log(self, name: str, size: int) -> Path:
        """A job that is over, with a log as progress bars make them: without a line's end. Gives its file."""
        self.run(job(name, "true"))
        uid = self.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
        folder = self.home / "tasks" / uid[:2] / uid
        for stream in ("all", "stdout"):
            with (folder / f"{stream}.0").open("wb") as log:
                log.truncate(size)
        return folder / "all.0"

    def bytes_read(self) -> int:
        """By the server, from whatever it has open."""
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/io").read_text().split()[1])
