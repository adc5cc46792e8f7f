"""A cluster with three users, for the tests of the API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.openapi_check import current_description
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job

PASSWORD = "a good password"
USERS = ("admin", "alice", "bob")
MACHINE = ("--cpus", "64", "--memory-mb", "65536", "--gpus", "4", "--allow-shared-account")
NewTeam = Callable[..., "TeamCluster"]


@dataclass
class TeamCluster(Cluster):
    """A cluster with users; requests without an explicit token are sent as alice."""

    tokens: dict[str, str] = field(default_factory=dict)

    def log_in(self, username: str) -> str:
        credentials = {"username": username, "password": PASSWORD}
        reply = self.ask("POST", "/api/v2/authn/basic/login", credentials, token=None)
        assert reply.status == 200, reply.text
        return str(reply.json()["token"])

    def admin_token(self) -> str:
        return self.tokens["admin"]

    @contextlib.contextmanager
    def as_administrator(self, username: str) -> Iterator[None]:
        """The user is an administrator within the block."""
        for admin in (True, False):
            body, path = {"admin": admin}, f"/api/v2/users/{username}/admin"
            reply = self.ask("PUT", path, body, token=self.admin_token())
            assert reply.status == 201, reply.text
            if admin:
                yield

    def token_of_job(self, name: str, session: str) -> str:
        """The token of a running job of this session's user; its task writes it to a file."""
        file = self.home.parent / f"{name}.token"
        script = f"umask 077; echo $PAI_USER_TOKEN > {file}.part; mv {file}.part {file}; sleep 600"
        assert self.submit(job(name, script), token=session).status == 202
        eventually(file.exists, "the token")
        return file.read_text().strip()

    def make_long_log(self, name: str, size: int) -> Path:
        """Create a finished job with a long log without line breaks; returns the log's file."""
        self.run(job(name, "true"))
        uid = self.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
        folder = self.home / "tasks" / uid[:2] / uid
        for stream in ("all", "stdout"):
            with (folder / f"{stream}.0").open("wb") as log:
                log.truncate(size)
        return folder / "all.0"

    def bytes_read(self) -> int:
        """Bytes that the server process has read so far."""
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/io").read_text().split()[1])


def add_users(
    home: Path,
    names: tuple[str, ...] = USERS,
    password: str = PASSWORD,
    admins: tuple[str, ...] = ("admin",),
) -> None:
    """Create users in a home that was never started."""
    prepare_database(home, names, admins=admins, password=password)


@pytest.fixture(scope="session", name="cluster")
def api_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    """One running cluster with three users for the whole session."""
    home = tmp_path_factory.mktemp("api") / "home"
    add_users(home)
    running = TeamCluster(
        home, ("--allow-shared-account", "--cpus", "64", "--memory-mb", "65536", "--gpus", "4")
    )
    try:
        running.start()
        running.description = current_description(thorough=True)
        running.tokens = {user: running.log_in(user) for user in USERS}
        running.user, running.token = "alice", running.tokens["alice"]
        yield running
    finally:
        running.close()


@pytest.fixture(name="new_team")
def new_team_fixture(tmp_path: Path) -> Iterator[NewTeam]:
    """Starts clusters with `admin`, `alice` and `bob`; ``config`` is their settings file."""
    running: list[TeamCluster] = []

    def start(config: str = "", names: tuple[str, ...] = USERS, **more: Any) -> TeamCluster:
        home = tmp_path / f"home-{len(running)}"
        add_users(home, names)
        options = MACHINE
        if config:
            file = tmp_path / f"cluster-{len(running)}.yaml"
            file.write_text(config)
            options = ("--config", str(file), *MACHINE)
        cluster = TeamCluster(home, options, **more)
        running.append(cluster)
        cluster.start()
        cluster.description = current_description(thorough=True)
        cluster.tokens = {user: cluster.log_in(user) for user in names[:3]}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        return cluster

    yield start
    for cluster in running:
        cluster.close()


@pytest.fixture(scope="module", name="team")
def module_team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    """One cluster for the tests of a file, with default settings."""
    home = tmp_path_factory.mktemp("team") / "home"
    add_users(home)
    cluster = TeamCluster(home, MACHINE)
    try:
        cluster.start()
        cluster.description = current_description(thorough=True)
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session", name="team")
def storage_team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    """One cluster for all transfer tests."""
    home = tmp_path_factory.mktemp("transfer") / "home"
    add_users(home)
    running = TeamCluster(home, ("--cpus", "4", "--memory-mb", "4096", "--allow-shared-account"))
    try:
        running.start()
        running.tokens = {user: running.log_in(user) for user in USERS}
        running.user, running.token = "alice", running.tokens["alice"]
        yield running
    finally:
        running.close()
