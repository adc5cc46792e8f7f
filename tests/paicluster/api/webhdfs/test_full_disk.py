"""A disk that fills up in the middle of an upload: the right refusal, and the old file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.small_disk import mounted
from support.webhdfs_client import StorageCluster, Web

pytestmark = pytest.mark.slow

_MB = b"x" * (1 << 20)


@pytest.fixture
def small(tmp_path: Path, new_cluster: Callable[..., StorageCluster]) -> Iterator[Web]:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        cluster = new_cluster(f"storages:\n- {{name: home, type: own, path: {disk}}}\n")
        yield cluster.person("alice")


def _send(web: Web, method: str, query: str, megabytes: int) -> tuple[int, bytes]:
    """In chunks: nobody is told beforehand how much it will be."""
    connection = web.cluster.connect()
    headers = {"Authorization": f"Bearer {web.token}", "Transfer-Encoding": "chunked"}
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


def test_a_full_disk_leaves_the_old_file(small: Web, tmp_path: Path) -> None:
    small.write("/user/alice/file", b"old")
    for method, query in (("PUT", "op=CREATE&overwrite=true"), ("POST", "op=APPEND")):
        status, said = _send(small, method, query, 20)
        assert status == 403
        assert b'"org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException"' in said
        assert small.read("/user/alice/file") == b"old"
    # What fits beside itself while it is staged, and not at the end of the file, is taken off again.
    status, said = _send(small, "POST", "op=APPEND", 5)
    assert (status, b"DiskOutOfSpaceException" in said) == (403, True)
    assert small.read("/user/alice/file") == b"old"
    assert list((tmp_path / "disk/.pai/staged").iterdir()) == []
    assert list((tmp_path / "disk/.pai/journal").iterdir()) == []
    assert _send(small, "POST", "op=APPEND", 1)[0] == 200
    assert small.read("/user/alice/file") == b"old" + _MB
