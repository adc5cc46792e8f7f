"""Storage quotas over the APIs: WebHDFS, transfer, sources; and what they report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.storage import Storage
from paiprotocol.errors import PaiError
from support.server_fixture import Reply, eventually
from support.team_cluster import TeamCluster

MB = 1 << 20
LIMIT = 4 * MB


@pytest.fixture(autouse=True)
def quota(team: TeamCluster) -> Iterator[None]:
    """Alice may store 4 MB."""
    set_limit(team, LIMIT)
    webhdfs(team, "DELETE", "/user/alice/t", op="DELETE", recursive="true")
    # The first count is what makes the limit hold.
    eventually(lambda: stored(team) is not None and refuses(team), "the limit")
    yield
    set_limit(team, None)


def set_limit(team: TeamCluster, limit: int | None) -> None:
    body = {"storageBytes": limit}
    reply = team.ask("PUT", "/api/v2/users/alice/quota", body, token=team.tokens["admin"])
    assert reply.status == 201, reply.text


def stored(team: TeamCluster) -> int:
    [own] = team.get("/api/v2/quota").json()["quotas"]
    return int(own["resources"]["storageBytes"]["used"])


def webhdfs(team: TeamCluster, method: str, path: str, body: bytes | None = None, **query: str) -> Reply:
    return team.ask(method, f"/webhdfs/v1{path}?{urlencode({'data': 'true', **query})}", body)


def create(team: TeamCluster, name: str, size: int) -> Reply:
    return webhdfs(team, "PUT", f"/user/alice/t/{name}", b"x" * size, op="CREATE", overwrite="true")


def refuses(team: TeamCluster) -> bool:
    reply = create(team, "too-large", LIMIT + 1)
    return reply.status == 403


def summary(team: TeamCluster, op: str, path: str = "/user/alice") -> dict[str, Any]:
    (found,) = team.get(f"/webhdfs/v1{path}?op={op}").json().values()
    return dict(found)


def test_webhdfs_answers_with_hadoops_exception(team: TeamCluster) -> None:
    assert create(team, "a", 3 * MB).status == 201
    reply = create(team, "b", 2 * MB)
    assert reply.status == 403
    exception = reply.json()["RemoteException"]
    assert exception["javaClassName"] == "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
    assert exception["exception"] == "DSQuotaExceededException"
    assert "The storage quota of user alice is exceeded" in exception["message"]
    assert create(team, "a", 4 * MB - 1000).status == 403, "the old file counts until it is replaced"
    assert webhdfs(team, "DELETE", "/user/alice/t/a", op="DELETE").status == 200
    assert create(team, "b", 2 * MB).status == 201


def test_summary_quota_usage_and_quota_agree(team: TeamCluster) -> None:
    assert create(team, "a", 3 * MB).status == 201
    for op in ("GETCONTENTSUMMARY", "GETQUOTAUSAGE"):
        found = summary(team, op)
        assert (found["spaceConsumed"], found["spaceQuota"]) == (stored(team), LIMIT), op
    below = summary(team, "GETCONTENTSUMMARY", "/user/alice/t")
    assert (below["spaceConsumed"], below["spaceQuota"]) == (3 * MB, -1)


def test_transfer_is_refused_with_507(team: TeamCluster, tmp_path: Any) -> None:
    host, port = team.address
    client = ClusterClient("team", Endpoint(f"http://{host}:{port}", "alice", team.tokens["alice"]))
    upload = {"path": "/user/alice/t/large", "key": "k", "size": LIMIT + 1}
    reply = team.ask("POST", "/api/v2/transfer/uploads", upload)
    assert (reply.status, reply.json()["code"]) == (507, "QuotaExceededError")
    source = tmp_path / "source"
    source.mkdir()
    for number in range(6):
        (source / f"{number}").write_bytes(b"x" * MB)
    with pytest.raises(PaiError, match="storage quota of user alice"):
        Storage.of(client, over_http=True).upload(str(source), "/user/alice/t/packed")
    assert 3 * MB <= stored(team) <= LIMIT


def test_announced_part_takes_no_disk_before_its_bytes_arrive(team: TeamCluster) -> None:
    set_limit(team, None)
    part_bytes = 1 << 30
    upload = {"path": "/user/alice/t/parts", "key": "k", "size": -1, "partBytes": part_bytes}
    begun = team.ask("POST", "/api/v2/transfer/uploads", upload).json()["id"]
    connection = team.connect()
    connection.putrequest("PUT", f"/api/v2/transfer/uploads/{begun}?offset=0")
    connection.putheader("Authorization", f"Bearer {team.token}")
    connection.putheader("Content-Length", str(part_bytes + 16))
    connection.endheaders()
    connection.send(b"x" * 2 * MB)
    partial = team.home / "storage" / ".pai" / "partial"
    files = [file for file in partial.iterdir() if file.suffix != ".parts"]
    eventually(lambda: max(file.stat().st_blocks for file in files), "the first bytes")
    assert sum(file.stat().st_blocks * 512 for file in files) <= 16 * MB
    assert stored(team) >= 2 * MB, "an unfinished upload counts"
    connection.close()
    eventually(lambda: team.ask("DELETE", f"/api/v2/transfer/uploads/{begun}").status == 200, "the end of it")
    assert stored(team) < 2 * MB


def test_sources_count(team: TeamCluster) -> None:
    before = stored(team)
    archive = b"\0" * (2 * MB)
    digest = hashlib.sha256(archive).hexdigest()
    assert team.ask("PUT", f"/api/v2/sources/{digest}", archive).status == 201
    assert stored(team) - before == 2 * MB
    large = b"\1" * (3 * MB)
    reply = team.ask("PUT", f"/api/v2/sources/{hashlib.sha256(large).hexdigest()}", large)
    assert (reply.status, reply.json()["code"]) == (507, "QuotaExceededError")
    assert stored(team) - before == 2 * MB
