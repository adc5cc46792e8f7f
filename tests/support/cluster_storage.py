"""The storage of a cluster as one of its people has it."""

from __future__ import annotations

import itertools

import pytest

from openpaisdk.client import Cluster, Endpoint
from openpaisdk.parcels import hashing, records
from openpaisdk.storage import Storage
from openpaisdk.storage.fast import Fast
from paicluster.files import Person
from support.team_cluster import TeamCluster

ALICE = Person("alice")


def storage_of(team: TeamCluster, who: str, *, over_http: bool = False) -> Storage:
    url = "http://{}:{}".format(*team.address)
    return Storage.of(Cluster("team", Endpoint(url, who, team.tokens[who])), over_http=over_http)


BASE = "/api/v2/transfer"


PART = 8 << 20


_numbers = itertools.count()


@pytest.fixture(name="folder")
def folder_fixture() -> str:
    return f"/user/alice/t{next(_numbers)}"


def fast(team: TeamCluster, who: str, *, over_http: bool = True) -> Fast:
    backend = storage_of(team, who, over_http=over_http).backend
    assert isinstance(backend, Fast)
    return backend


def pack(*files: tuple[str, bytes]) -> bytes:
    out = []
    for name, content in files:
        digest = hashing.of_bytes(content, hashing.XXH3)
        out += [
            records.head(records.Record(records.FILE, name, content, digest=digest, mtime_ns=10**18)),
            content,
        ]
    return b"".join([*out, records.end(len(files))])


def about(path: str, size: int, **more: object) -> dict[str, object]:
    return {"path": path, "key": "k", "size": size, "mtime": 10**18, "mode": 0o644, "partBytes": PART, **more}
