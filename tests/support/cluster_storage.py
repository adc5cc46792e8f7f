"""Storage of a cluster as one of its users."""

from __future__ import annotations

import itertools

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage
from openpaisdk.storage.backends.cluster import ClusterBackend
from paicluster.files import StorageUser
from paiprotocol.transfer import hashing, pack_format
from support.team_cluster import TeamCluster

ALICE = StorageUser("alice")


def storage_of(team: TeamCluster, user: str, *, over_http: bool = False) -> Storage:
    url = "http://{}:{}".format(*team.address)
    return Storage.of(ClusterClient("team", Endpoint(url, user, team.tokens[user])), over_http=over_http)


BASE = "/api/v2/transfer"


PART = 8 << 20


_numbers = itertools.count()


@pytest.fixture(name="folder")
def folder_fixture() -> str:
    return f"/user/alice/t{next(_numbers)}"


def cluster_backend(team: TeamCluster, user: str, *, over_http: bool = True) -> ClusterBackend:
    backend = storage_of(team, user, over_http=over_http).backend
    assert isinstance(backend, ClusterBackend)
    return backend


def pack(*files: tuple[str, bytes]) -> bytes:
    out = []
    for name, content in files:
        digest = hashing.hash_bytes(content, hashing.XXH3)
        out += [
            pack_format.record_header(
                pack_format.PackRecord(pack_format.FILE, name, content, digest=digest, mtime_ns=10**18)
            ),
            content,
        ]
    return b"".join([*out, pack_format.end_record(len(files))])


def upload_request(path: str, size: int, **more: object) -> dict[str, object]:
    return {"path": path, "key": "k", "size": size, "mtime": 10**18, "mode": 0o644, "partBytes": PART, **more}
