"""Storage workspace: a local folder, a folder on the cluster, and the real `pai`."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage
from support.cli_user import CliUser, CommandResult
from support.faulty_proxy import FaultyProxy


class StorageWorkspace:
    def __init__(self, person: CliUser, url: str, user: str, token: str):
        self.person = person
        self.url, self.user, self.token = url, user, token
        self.remote = ""
        self.path = ""

    def begin(self, folder: Any, number: int) -> None:
        self.local = Path(folder) / "here"
        self.local.mkdir()
        self.person.project = self.local
        self.path = f"/user/{self.user}/t{number}-{os.getpid()}"
        self.remote = f"pai://team/0{self.path}"
        self.storage(over_http=True).makedirs(self.path)

    def cluster(self) -> ClusterClient:
        return ClusterClient("team", Endpoint(self.url, self.user, self.token))

    def storage(self, *, over_http: bool = False) -> Storage:
        return Storage.of(self.cluster(), over_http=over_http)

    def pai(self, *arguments: str, **more: Any) -> CommandResult:
        return self.person.pai(*arguments, **more)

    def ok(self, *arguments: str, **more: Any) -> str:
        done = self.pai(*arguments, **more)
        assert done.status == 0, done
        return done.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "-o", "json"))

    def write(self, name: str, content: bytes | str = b"x", *, mtime: float | None = None) -> Path:
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def read(self, name: str) -> bytes:
        """Content of a remote file."""
        done = self.person.run(["bash", "-c", f"pai copy {self.remote}/{name} - | base64 -w0"])
        assert done.status == 0, done
        import base64

        return base64.b64decode(done.out)

    def names(self, path: str = "") -> list[str]:
        """Paths of all files below a remote folder."""
        found = self.json("listdir", "-R", f"{self.remote}/{path}".rstrip("/"))
        return sorted(each["path"].removeprefix(self.path + "/") for each in found if each["type"] == "file")


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session", name="shared_workspace")
def shared_workspace_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageWorkspace]:
    person = CliUser(tmp_path_factory.mktemp("storage"))
    person.start_cluster()
    # Under an alias of its own, like a remote cluster: its address does not change during the tests.
    handshake = person.handshake()
    entry = {
        "cluster_alias": "team",
        "pai_uri": handshake["url"],
        "user": handshake["user"],
        "token": handshake["token"],
    }
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    yield StorageWorkspace(person, str(handshake["url"]), str(handshake["user"]), str(handshake["token"]))
    person.stop_cluster()


_numbers = itertools.count()


@pytest.fixture(name="workspace")
def workspace_fixture(shared_workspace: StorageWorkspace, tmp_path: object) -> StorageWorkspace:
    """The shared workspace, with a new empty local folder and a new empty remote folder."""
    shared_workspace.begin(tmp_path, next(_numbers))
    return shared_workspace


@pytest.fixture(name="proxy")
def faulty_proxy_fixture(workspace: StorageWorkspace) -> Iterator[FaultyProxy]:
    """The same cluster, with the alias `far`, behind a faulty proxy."""
    proxy = FaultyProxy(workspace.url)
    clusters_file = workspace.person.home / ".openpai/clusters.yaml"
    before = clusters_file.read_text()
    entry = {"cluster_alias": "far", "pai_uri": proxy.url, "user": workspace.user, "token": workspace.token}
    clusters_file.write_text(
        before.rstrip() + "\n" if before.startswith("-") else "- " + before.strip("[] \n") + "\n"
    )
    with clusters_file.open("a") as f:
        f.write("- " + json.dumps(entry) + "\n")
    yield proxy
    proxy.close()
    clusters_file.write_text(before)
