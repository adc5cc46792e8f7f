"""A long checksum does not block other requests, and stops when its client disconnects."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.server_fixture import eventually
from support.webhdfs_client import StorageCluster, WebHdfsClient

_SIZE_FOR_HOURS = 1 << 40
_REQUESTS = 24


@contextlib.contextmanager
def _requesting(
    cluster: StorageCluster, path: str, token: str | None
) -> Iterator[list[http.client.HTTPConnection]]:
    """Connections that wait for the checksum of one large file."""
    (cluster.home / "storage").joinpath(path[1:]).touch()
    os.truncate(cluster.home / "storage" / path[1:], _SIZE_FOR_HOURS)
    connections = []
    for _ in range(_REQUESTS):
        connection = http.client.HTTPConnection(*cluster.address, timeout=90)
        connection.request(
            "GET",
            f"/webhdfs/v1{path}?op=GETFILECHECKSUM&data=true",
            headers={"Authorization": f"Bearer {token}"},
        )
        connections.append(connection)
    eventually(lambda: _open_count(cluster, path) >= 2, "that the file is read")
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def _open_count(cluster: StorageCluster, path: str) -> int:
    """How many times the server has the file open."""
    assert cluster.process is not None
    folder, count = f"/proc/{cluster.process.pid}/fd", 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            count += str(Path(folder, name).readlink()).endswith(path)
    return count


def test_long_checksum_blocks_no_one_and_ends_with_its_client(
    cluster: StorageCluster, alice: WebHdfsClient, bob: WebHdfsClient, folder: str
) -> None:
    with _requesting(cluster, f"{folder}/large", alice.token):
        for number in range(20):
            bob.write(f"/user/bob/meanwhile{number}", b"x")
        assert alice.names(folder) == ["large"]
    eventually(lambda: _open_count(cluster, f"{folder}/large") == 0, "the end of reading")
    alice.write(f"{folder}/small", b"x")
    assert alice.json("GETFILECHECKSUM", f"{folder}/small", data="true")["FileChecksum"]["algorithm"]


@pytest.mark.slow
def test_shutdown_does_not_wait_for_checksums(new_cluster: Callable[..., StorageCluster]) -> None:
    cluster = new_cluster()
    with _requesting(cluster, "/user/alice/large", cluster.tokens["alice"]):
        assert cluster.terminate() == 0
