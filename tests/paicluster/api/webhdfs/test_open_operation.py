"""OPEN: whole files, ranges, slow and disconnecting readers."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.server_fixture import eventually
from support.webhdfs_client import StorageCluster, WebHdfsClient, exception

LARGE = hashlib.shake_128(b"read").digest(3_000_000)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, LARGE),
        ({"offset": 5}, LARGE[5:]),
        ({"offset": 5, "length": 10}, LARGE[5:15]),
        ({"length": 0}, b""),
        ({"offset": 1_000_000, "length": 1_500_000}, LARGE[1_000_000:2_500_000]),
        ({"offset": 2_999_999, "length": 100}, LARGE[-1:]),
        ({"offset": 3_000_000}, b""),
        ({"buffersize": 4096}, LARGE),
    ],
)
def test_read_by_offset_and_length(alice: WebHdfsClient, parameters: dict[str, int], expected: bytes) -> None:
    if "large" not in alice.names("/user/alice"):
        alice.write("/user/alice/large", LARGE, overwrite="true")
    reply = alice.get("OPEN", "/user/alice/large", data="true", **parameters)
    assert (reply.status, reply.headers["content-length"]) == (200, str(len(expected)))
    assert reply.body == expected


@pytest.mark.parametrize(
    ("range_header", "expected", "content_range"),
    [
        ("bytes=0-9", slice(0, 10), "bytes 0-9/3000000"),
        ("bytes=2999990-", slice(2_999_990, None), "bytes 2999990-2999999/3000000"),
        ("bytes=-7", slice(-7, None), "bytes 2999993-2999999/3000000"),
        ("bytes=100-2999999999", slice(100, None), "bytes 100-2999999/3000000"),
    ],
)
def test_read_by_range_header(
    alice: WebHdfsClient, folder: str, range_header: str, expected: slice, content_range: str
) -> None:
    alice.write(f"{folder}/large", LARGE)
    reply = alice.ask("GET", "OPEN", f"{folder}/large", headers={"Range": range_header})
    assert (reply.status, reply.headers["content-range"]) == (206, content_range)
    assert reply.body == LARGE[expected]


def follow(cluster: StorageCluster, location: str) -> tuple[int, bytes]:
    """Send a GET to a redirect's URL, as a client without a token does."""
    where = urlsplit(location)
    reply = cluster.get(f"{where.path}?{where.query}", token=None)
    return reply.status, reply.body


def test_open_redirects_as_hdfs_does(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    alice.write(f"{folder}/a ä", b"0123456789")
    reply = alice.get("OPEN", f"{folder}/a ä", offset=2, length=5)
    assert (reply.status, reply.body) == (307, b"")
    assert alice.token is not None
    assert alice.token not in reply.headers["location"]
    assert follow(cluster, reply.headers["location"]) == (200, b"23456")
    reply = alice.get("OPEN", f"{folder}/a ä", noredirect="true", offset=8)
    assert reply.status == 200
    assert follow(cluster, reply.json()["Location"]) == (200, b"89")


def test_checksum_redirects_as_hdfs_does(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    alice.write(f"{folder}/file", b"0123456789")
    direct = alice.json("GETFILECHECKSUM", f"{folder}/file", data="true")
    assert direct["FileChecksum"]["algorithm"].startswith("MD5-of-")
    reply = alice.get("GETFILECHECKSUM", f"{folder}/file")
    assert (reply.status, reply.body) == (307, b"")
    status, body = follow(cluster, reply.headers["location"])
    assert (status, json.loads(body)) == (200, direct)


@pytest.mark.parametrize("operation", ["OPEN", "GETFILECHECKSUM"])
def test_error_is_reported_before_the_redirect(alice: WebHdfsClient, folder: str, operation: str) -> None:
    assert exception(alice.get(operation, f"{folder}/none")) == (404, "FileNotFoundException")
    assert exception(alice.get(operation, folder)) == (404, "FileNotFoundException")
    assert exception(alice.get(operation, "/user/bob/file")) == (403, "AccessControlException")


def test_read_beyond_the_end(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", b"12345")
    assert exception(alice.get("OPEN", f"{folder}/file", offset=6)) == (403, "IOException")
    reply = alice.ask("GET", "OPEN", f"{folder}/file", headers={"Range": "bytes=5-9"})
    assert exception(reply) == (416, "IOException")


def test_reader_keeps_the_file_it_opened(alice: WebHdfsClient, folder: str) -> None:
    alice.write(f"{folder}/file", LARGE * 4)
    connection = alice.cluster.connect()
    connection.request(
        "GET",
        f"/webhdfs/v1{folder}/file?op=OPEN&data=true",
        headers={"Authorization": f"Bearer {alice.token}"},
    )
    reply = connection.getresponse()
    first = reply.read(1000)
    alice.write(f"{folder}/file", b"new", overwrite="true")
    assert alice.ask("DELETE", "DELETE", f"{folder}/file").json() == {"boolean": True}
    assert first + reply.read() == LARGE * 4
    connection.close()


def test_disconnected_reader_leaves_no_open_file(
    alice: WebHdfsClient, folder: str, cluster: StorageCluster
) -> None:
    assert cluster.process is not None
    alice.write(f"{folder}/file", LARGE * 10)
    on_disk = str(cluster.home / "storage" / folder[1:] / "file")
    descriptors = Path(f"/proc/{cluster.process.pid}/fd")

    def open_files() -> list[str]:
        targets = []
        for name in os.listdir(descriptors):
            try:
                targets.append(str((descriptors / name).readlink()))
            except FileNotFoundError:
                continue
        return [file for file in targets if file == on_disk]

    for _ in range(3):
        connection = cluster.connect()
        connection.request(
            "GET",
            f"/webhdfs/v1{folder}/file?op=OPEN&data=true",
            headers={"Authorization": f"Bearer {alice.token}"},
        )
        connection.getresponse().read(1000)
        assert open_files()
        connection.close()
    eventually(lambda: not open_files(), "the end of reading")


@pytest.mark.slow
def test_slow_reader_gets_everything(new_cluster: Callable[..., StorageCluster]) -> None:
    cluster = new_cluster("limits: {slow-client: 1s}\n")
    alice = cluster.client("alice")
    alice.write("/user/alice/file", LARGE * 8)
    # If this machine stalled, the reader was not steady, and the attempt proves nothing: repeat it.
    eventually(lambda: _reads_all_steadily(cluster, alice.token), "a run without a stall of this machine")


def _reads_all_steadily(cluster: StorageCluster, token: str) -> bool:
    connection = cluster.connect()
    connection.request(
        "GET",
        "/webhdfs/v1/user/alice/file?op=OPEN&data=true",
        headers={"Authorization": f"Bearer {token}"},
    )
    reply = connection.getresponse()
    received = 0
    steady = True
    last = time.monotonic()
    # So slow that the server always has something to send, for several times its timeout.
    deadline = last + 4
    try:
        while last < deadline:
            received += len(reply.read(100_000))
            time.sleep(0.05)
            last, before = time.monotonic(), last
            steady = steady and last - before < 0.5
        received += len(reply.read())
    except (OSError, http.client.IncompleteRead):
        assert not steady, "the steady reader was dropped"
        return False
    finally:
        connection.close()
    assert received == len(LARGE) * 8 or not steady
    return steady
