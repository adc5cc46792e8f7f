"""A person at work with files: a folder here, a folder on the cluster, and the real `pai`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cli.at_a_terminal import Done, Person
from openpaisdk.client import Cluster, Endpoint
from openpaisdk.storage import Storage


class Desk:
    def __init__(self, person: Person, url: str, user: str, token: str):
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

    def cluster(self) -> Cluster:
        return Cluster("team", Endpoint(self.url, self.user, self.token))

    def storage(self, *, over_http: bool = False) -> Storage:
        return Storage.of(self.cluster(), over_http=over_http)

    def pai(self, *words: str, **more: Any) -> Done:
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
