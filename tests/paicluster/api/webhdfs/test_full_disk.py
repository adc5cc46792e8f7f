"""A disk that fills up during an upload: the right error, and the old file stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from support.server_fixture import job
from support.small_disk import mounted
from support.webhdfs_client import StorageCluster, WebHdfsClient, exception, prepare_home, start_cluster

pytestmark = pytest.mark.slow

_MB = b"x" * (1 << 20)


@pytest.fixture
def small(tmp_path: Path, new_cluster: Callable[..., StorageCluster]) -> Iterator[WebHdfsClient]:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        cluster = new_cluster(f"storages:\n- {{name: home, type: own, path: {disk}}}\n")
        yield cluster.client("alice")


def _send(client: WebHdfsClient, method: str, query: str, megabytes: int) -> tuple[int, bytes]:
    """Chunked: the size is not known in advance."""
    connection = client.cluster.connect()
    headers = {"Authorization": f"Bearer {client.token}", "Transfer-Encoding": "chunked"}
    try:
        connection.request(
            method,
            f"/webhdfs/v1/user/alice/file?{query}",
            (_MB for _ in range(megabytes)),
            headers,
            encode_chunked=True,
        )
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_a_full_disk_leaves_the_old_file(small: WebHdfsClient, tmp_path: Path) -> None:
    small.write("/user/alice/file", b"old")
    for method, query in (("PUT", "op=CREATE&overwrite=true"), ("POST", "op=APPEND")):
        status, body = _send(small, method, query, 20)
        assert status == 403
        assert b'"org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException"' in body
        assert small.read("/user/alice/file") == b"old"
    # Data that fits into the staging file but not at the end of the target is removed again.
    status, body = _send(small, "POST", "op=APPEND", 5)
    assert (status, b"DiskOutOfSpaceException" in body) == (403, True)
    assert small.read("/user/alice/file") == b"old"
    assert list((tmp_path / "disk/.pai/staged").iterdir()) == []
    assert list((tmp_path / "disk/.pai/journal").iterdir()) == []
    assert _send(small, "POST", "op=APPEND", 1)[0] == 200
    assert small.read("/user/alice/file") == b"old" + _MB


def test_uploads_leave_the_database_space_to_write(tmp_path: Path) -> None:
    """A user fills the disk of a cluster through its storage; jobs are still accepted and run."""
    with mounted(tmp_path / "disk", "size=96m") as disk:
        prepare_home(disk / "home")
        cluster = start_cluster(disk / "home")
        try:
            alice = cluster.client("alice")
            for kilobytes in (16384, 4096, 1024, 256, 64, 16, 4):
                for number in count():
                    path = f"/user/alice/{kilobytes}-{number}"
                    reply = alice.ask("PUT", "CREATE", path, b"x" * (kilobytes << 10), data="true")
                    if reply.status != 201:
                        assert exception(reply) == (403, "DiskOutOfSpaceException")
                        break
            assert cluster.run(job("after", "true"))["state"] == "SUCCEEDED"
        finally:
            cluster.close()
