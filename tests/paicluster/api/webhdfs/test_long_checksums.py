"""A checksum that takes hours keeps nobody else waiting, and ends with whoever asked for it."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.server_fixture import eventually
from support.webhdfs_client import StorageCluster, Web

_HOURS = 1 << 40
_MANY = 24


@contextlib.contextmanager
def _asking(
    cluster: StorageCluster, path: str, token: str | None
) -> Iterator[list[http.client.HTTPConnection]]:
    """Many who ask for the checksum of one large file, and wait for it."""
    (cluster.home / "storage").joinpath(path[1:]).touch()
    os.truncate(cluster.home / "storage" / path[1:], _HOURS)
    asking = []
    for _ in range(_MANY):
        connection = http.client.HTTPConnection(*cluster.address, timeout=20)
        connection.request(
            "GET", f"/webhdfs/v1{path}?op=GETFILECHECKSUM", headers={"Authorization": f"Bearer {token}"}
        )
        asking.append(connection)
    eventually(lambda: _reading(cluster, path) >= 2, "that the file is read")
    try:
        yield asking
    finally:
        for connection in asking:
            connection.close()


def _reading(cluster: StorageCluster, path: str) -> int:
    """How often the server has the file open."""
    assert cluster.process is not None
    folder, count = f"/proc/{cluster.process.pid}/fd", 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            count += str(Path(folder, name).readlink()).endswith(path)
    return count


def test_others_go_on_meanwhile_and_it_ends_with_its_client(
    cluster: StorageCluster, alice: Web, bob: Web, folder: str
) -> None:
    with _asking(cluster, f"{folder}/large", alice.token):
        for number in range(20):
            bob.write(f"/user/bob/meanwhile{number}", b"x")
        assert alice.names(folder) == ["large"]
    eventually(lambda: _reading(cluster, f"{folder}/large") == 0, "that nobody reads the file any more")
    alice.write(f"{folder}/small", b"x")
    assert alice.json("GETFILECHECKSUM", f"{folder}/small")["FileChecksum"]["algorithm"]


@pytest.mark.slow
def test_a_server_that_leaves_does_not_wait_for_it(new_cluster: Callable[..., StorageCluster]) -> None:
    cluster = new_cluster()
    with _asking(cluster, "/user/alice/large", cluster.tokens["alice"]):
        assert cluster.terminate() == 0
