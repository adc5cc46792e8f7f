"""Clusters with several users, each with a Unix account on this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.external_services import missing
from support.prepared_database import prepare_database
from support.server_fixture import Cluster

PASSWORD = "CANARY-password"


def add_people(home: Path, *names: str) -> None:
    """Users in the database of a cluster that does not run; `admin` is one of them."""
    prepare_database(home, ("admin", *names), admins=("admin",), password=PASSWORD)


@contextlib.contextmanager
def unix_accounts(*names: str) -> Iterator[dict[str, pwd.struct_passwd]]:
    """Accounts of this machine, with home folders; gone afterwards."""
    if os.geteuid() != 0 or shutil.which("useradd", path="/usr/sbin:/usr/bin:/sbin") is None:
        missing("root, who can make accounts,")
    made = []
    try:
        for name in names:
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
            made.append(name)
        yield {name: pwd.getpwnam(name) for name in names}
    finally:
        for name in made:
            subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that other accounts can reach, which those that pytest makes are not."""
    folder = Path(tempfile.mkdtemp(prefix="pai-people-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def processes_with_argument(argument: str) -> dict[int, set[str]]:
    """Processes with this argument, by number: the users that each is, really, effectively and saved."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                lines = (entry / "status").read_text().splitlines()
                users = next(line.split()[1:] for line in lines if line.startswith("Uid:"))
                found[int(entry.name)] = {pwd.getpwuid(int(user)).pw_name for user in users}
    return found


@dataclass
class CrewCluster(Cluster):
    """A cluster with people. `as_user` changes whose requests the others are."""

    tokens: dict[str, str] = field(default_factory=dict)

    def as_user(self, name: str) -> CrewCluster:
        if name not in self.tokens:
            who = {"username": name, "password": PASSWORD}
            reply = self.ask("POST", "/api/v2/authn/basic/login", who, token=None)
            assert reply.status == 200, reply.text
            self.tokens[name] = reply.json()["token"]
        self.user, self.token = name, self.tokens[name]
        return self

    def admin_token(self) -> str:
        self.as_user("admin")
        return self.tokens["admin"]

    def folder_of(self, name: str) -> Path:
        uid = self.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
        return self.home / "tasks" / uid[:2] / uid
