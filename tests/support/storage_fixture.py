"""A person at work with files: a folder here, a folder on the cluster, and the real `pai`."""

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
from support.faulty_proxy import BadWire


class Desk:
    def __init__(self, person: CliUser, url: str, user: str, token: str):
        self.person = person
        self.url, self.user, self.token = url, user, token
        self.there = ""
        self.path = ""

    def begin(self, folder: Any, number: int) -> None:
        self.here = Path(folder) / "here"
        self.here.mkdir()
        self.person.project = self.here
        self.path = f"/user/{self.user}/t{number}-{os.getpid()}"
        self.there = f"pai://team/0{self.path}"
        self.storage(over_http=True).makedirs(self.path)

    def cluster(self) -> ClusterClient:
        return ClusterClient("team", Endpoint(self.url, self.user, self.token))

    def storage(self, *, over_http: bool = False) -> Storage:
        return Storage.of(self.cluster(), over_http=over_http)

    def pai(self, *words: str, **more: Any) -> CommandResult:
        return self.person.pai(*words, **more)

    def ok(self, *words: str, **more: Any) -> str:
        done = self.pai(*words, **more)
        assert done.status == 0, done
        return done.out

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))

    def write(self, name: str, content: bytes | str = b"x", *, mtime: float | None = None) -> Path:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def read(self, name: str) -> bytes:
        """A file of the cluster."""
        done = self.person.run(["bash", "-c", f"pai copy {self.there}/{name} - | base64 -w0"])
        assert done.status == 0, done
        import base64

        return base64.b64decode(done.out)

    def names(self, path: str = "") -> list[str]:
        """What lies in a folder of the cluster, at any depth."""
        found = self.json("listdir", "-R", f"{self.there}/{path}".rstrip("/"))
        return sorted(each["path"].removeprefix(self.path + "/") for each in found if each["type"] == "file")


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session", name="shared_desk")
def shared_desk_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    person = CliUser(tmp_path_factory.mktemp("storage"))
    assert person.pai("start-cluster").status == 0
    (person.home / ".openpai").mkdir(exist_ok=True)
    # Under an alias of its own, as a cluster somewhere else would be: its address does not change under us.
    said = person.handshake()
    entry = {"cluster_alias": "team", "pai_uri": said["url"], "user": said["user"], "token": said["token"]}
    (person.home / ".openpai/clusters.yaml").write_text(json.dumps([entry]))
    yield Desk(person, str(said["url"]), str(said["user"]), str(said["token"]))
    person.stop_cluster()


_numbers = itertools.count()


@pytest.fixture(name="desk")
def desk_fixture(shared_desk: Desk, tmp_path: object) -> Desk:
    """The shared person, in an empty folder, with an empty folder on the storage."""
    shared_desk.begin(tmp_path, next(_numbers))
    return shared_desk


@pytest.fixture(name="wire")
def wire_fixture(desk: Desk) -> Iterator[BadWire]:
    """The same cluster, called `far`, over a bad wire."""
    wire = BadWire(desk.url)
    book = desk.person.home / ".openpai/clusters.yaml"
    before = book.read_text()
    entry = {"cluster_alias": "far", "pai_uri": wire.url, "user": desk.user, "token": desk.token}
    book.write_text(before.rstrip() + "\n" if before.startswith("-") else "- " + before.strip("[] \n") + "\n")
    with book.open("a") as f:
        f.write("- " + json.dumps(entry) + "\n")
    yield wire
    wire.close()
    book.write_text(before)
