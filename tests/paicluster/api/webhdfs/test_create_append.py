"""CREATE and APPEND: in one step or two, atomic."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from support.server_fixture import eventually
from support.webhdfs_client import StorageCluster, WebHdfsClient, exception

StagingFiles = Callable[[], list[str]]


def send_to(cluster: StorageCluster, method: str, location: str, body: bytes) -> tuple[int, bytes]:
    """Send a request to a redirect URL, without a token."""
    where = urlsplit(location)
    assert where.netloc == "{}:{}".format(*cluster.address)
    connection = cluster.connect()
    try:
        connection.request(method, f"{where.path}?{where.query}", body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_create_in_two_steps(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    first = alice.put("CREATE", f"{folder}/a b/ä", permission="640")
    assert (first.status, first.body) == (307, b"")
    location = first.headers["location"]
    assert location.startswith(f"http://{cluster.address[0]}:{cluster.address[1]}/webhdfs/v1{folder}/a%20b/")
    assert alice.token is not None
    assert alice.token not in location
    assert alice.names(folder) == []
    assert send_to(cluster, "PUT", location, b"hello")[0] == 201
    assert alice.read(f"{folder}/a b/ä") == b"hello"
    assert alice.json("GETFILESTATUS", f"{folder}/a b/ä")["FileStatus"]["permission"] == "640"


def test_noredirect_returns_the_location(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    reply = alice.put("CREATE", f"{folder}/file", noredirect="true")
    assert reply.status == 200
    assert send_to(cluster, "PUT", reply.json()["Location"], b"one")[0] == 201
    reply = alice.ask("POST", "APPEND", f"{folder}/file", noredirect="true")
    assert send_to(cluster, "POST", reply.json()["Location"], b"two")[0] == 200
    reply = alice.get("OPEN", f"{folder}/file", noredirect="true", offset=1)
    assert send_to(cluster, "GET", reply.json()["Location"], b"") == (200, b"netwo")


def test_create_in_one_step(alice: WebHdfsClient, folder: str, cluster: StorageCluster) -> None:
    reply = alice.ask("PUT", "CREATE", f"{folder}/file", b"hello")
    assert (reply.status, reply.body) == (201, b"")
    assert reply.headers["location"] == f"webhdfs://{cluster.address[0]}:{cluster.address[1]}{folder}/file"
    assert alice.ask("POST", "APPEND", f"{folder}/file", b" you").status == 200
    assert alice.read(f"{folder}/file") == b"hello you"
    assert alice.ask("PUT", "CREATE", f"{folder}/empty", b"", data="true").status == 201
    assert alice.read(f"{folder}/empty") == b""


def test_redirect_url_can_be_used_for_several_appends(
    alice: WebHdfsClient, folder: str, cluster: StorageCluster
) -> None:
    alice.write(f"{folder}/file", b"")
    location = alice.ask("POST", "APPEND", f"{folder}/file").headers["location"]
    for piece in (b"one ", b"two ", b"three"):
        assert send_to(cluster, "POST", location, piece)[0] == 200
    assert alice.read(f"{folder}/file") == b"one two three"


def redirect_host(cluster: StorageCluster, **headers: str) -> str:
    """Scheme and host that CREATE redirects to."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = cluster.ask("PUT", "/webhdfs/v1/user/alice/file?op=CREATE", headers=named)
    assert reply.status == 307, reply.text
    return reply.headers["location"].partition("/webhdfs/")[0]


def test_redirect_goes_to_the_host_that_was_asked(cluster: StorageCluster) -> None:
    port = cluster.address[1]
    for host in (f"localhost:{port}", "gpu-1.example.org:9186", "PAI", "10.0.0.5", "[::1]:9186"):
        assert redirect_host(cluster, Host=host) == f"http://{host}"
    # Of proxies that are not trusted nothing is taken.
    forwarded = {"X_Forwarded_Host": "evil.example.com", "X_Forwarded_Proto": "https"}
    assert redirect_host(cluster, Host="asked", **forwarded) == "http://asked"


@pytest.mark.parametrize("host", ["", "a/b", "alice@evil.example.com", "evil.example.com?", "a b", "é"])
def test_redirect_ignores_a_host_that_is_none(cluster: StorageCluster, host: str) -> None:
    assert redirect_host(cluster, Host=host) == cluster.url


def test_redirect_goes_to_the_host_that_a_trusted_proxy_names(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster("listen: {trusted-proxies: [127.0.0.0/8]}\n")
    forwarded = {"X_Forwarded_Host": "pai.example.org, inner", "X_Forwarded_Proto": "https"}
    assert redirect_host(cluster, Host="inner:9186", **forwarded) == "https://pai.example.org"
    assert redirect_host(cluster, Host="inner:9186") == "http://inner:9186"


@pytest.mark.slow
def test_redirect_uses_the_configured_external_url(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster("", "--external-url", "https://pai.example.org/cluster/")
    reply = cluster.ask(
        "PUT",
        "/webhdfs/webhdfs/v1/user/alice/file?op=CREATE",
        headers={"Host": "evil.example.com", "X-Forwarded-Host": "evil.example.com"},
    )
    assert reply.headers["location"].startswith(
        "https://pai.example.org/cluster/webhdfs/webhdfs/v1/user/alice/file?op=CREATE&"
    )
    reply = cluster.ask("PUT", "/webhdfs/v1/user/alice/file?op=CREATE&data=true", "x")
    assert reply.headers["location"] == "swebhdfs://pai.example.org/user/alice/file"


@pytest.mark.parametrize("chunked", [False, True])
def test_large_body_is_stored_exactly(alice: WebHdfsClient, folder: str, chunked: bool) -> None:
    data = hashlib.shake_128(b"large").digest(5_000_001)
    body = (data[i : i + 70_001] for i in range(0, len(data), 70_001)) if chunked else data
    connection = alice.cluster.connect()
    connection.request(
        "PUT",
        f"/webhdfs/v1{folder}/file?op=CREATE",
        body,
        {"Authorization": f"Bearer {alice.token}"},
        encode_chunked=chunked,
    )
    assert connection.getresponse().status == 201
    connection.close()
    assert alice.read(f"{folder}/file") == data


def _begin(
    client: WebHdfsClient, path: str, size: int, op: str = "CREATE", method: str = "PUT"
) -> socket.socket:
    """Send the head of a request whose body follows later."""
    connection = socket.create_connection(client.cluster.address, timeout=90)
    connection.sendall(
        f"{method} /webhdfs/v1{path}?op={op}&overwrite=true HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {client.token}\r\nContent-Length: {size}\r\n\r\n".encode()
    )
    return connection


@pytest.mark.parametrize("size", [1000, 3_000_000])
@pytest.mark.parametrize("ending", ["closed", "half-closed", "reset"])
def test_interrupted_upload_keeps_the_old_file(
    alice: WebHdfsClient, folder: str, staged: StagingFiles, size: int, ending: str
) -> None:
    alice.write(f"{folder}/file", b"old")
    connection = _begin(alice, f"{folder}/file", size)
    connection.sendall(b"n" * (size - 1))
    if size > 1 << 20:
        eventually(staged, "the upload")
    if ending == "half-closed":
        connection.shutdown(socket.SHUT_WR)
    if ending == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if ending != "half-closed":
        connection.close()
    eventually(lambda: not staged(), "the end of the upload")
    connection.close()
    assert alice.read(f"{folder}/file") == b"old"
    assert alice.names(folder) == ["file"]


def test_interrupted_append_changes_nothing(alice: WebHdfsClient, folder: str, staged: StagingFiles) -> None:
    alice.write(f"{folder}/file", b"old")
    connection = _begin(alice, f"{folder}/file", 3_000_000, "APPEND", "POST")
    connection.sendall(b"n" * 2_500_000)
    eventually(staged, "the upload")
    connection.close()
    eventually(lambda: not staged(), "the end of the upload")
    assert alice.read(f"{folder}/file") == b"old"


def test_upload_larger_than_the_disk_is_rejected_at_once(
    alice: WebHdfsClient, folder: str, staged: StagingFiles
) -> None:
    with _begin(alice, f"{folder}/file", 1 << 60) as connection:
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert reply.status == 403
        assert b"DiskOutOfSpaceException" in reply.read()
    assert alice.names(folder) == []
    assert staged() == []


def test_readers_see_the_old_or_the_new_file(alice: WebHdfsClient, folder: str) -> None:
    versions = [bytes([65 + i]) * 300_000 for i in range(4)]
    alice.write(f"{folder}/file", versions[0])
    seen: set[bytes] = set()
    done = threading.Event()

    def read_repeatedly() -> None:
        while not done.is_set():
            seen.add(alice.read(f"{folder}/file"))

    reader = threading.Thread(target=read_repeatedly)
    reader.start()
    try:
        for i in range(12):
            alice.write(f"{folder}/file", versions[i % 4], overwrite="true")
    finally:
        done.set()
        reader.join()
    assert seen <= set(versions)


@pytest.mark.slow
def test_unfinished_upload_is_deleted_at_the_next_start(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster()
    alice = cluster.client("alice")
    alice.write("/user/alice/file", b"old")
    staging = cluster.home / "storage/.pai/staged"
    with contextlib.closing(_begin(alice, "/user/alice/file", 3_000_000)) as connection:
        connection.sendall(b"n" * 2_000_000)
        eventually(lambda: list(staging.iterdir()), "the upload")
        assert cluster.terminate() == 0
    assert "Traceback" not in cluster.log.read_text()
    cluster.start()
    with contextlib.closing(_begin(alice, "/user/alice/file", 3_000_000)) as connection:
        connection.sendall(b"n" * 2_000_000)
        eventually(lambda: list(staging.iterdir()), "the upload")
        cluster.kill()
    assert list(staging.iterdir())
    cluster.start()
    assert list(staging.iterdir()) == []
    assert alice.read("/user/alice/file") == b"old"


@pytest.mark.slow
def test_read_only_storage_is_written_only_by_administrators(
    new_cluster: Callable[..., StorageCluster],
) -> None:
    cluster = new_cluster("storages:\n  - {name: data, type: own, path: elsewhere, read-only: true}\n")
    alice, admin = cluster.client("alice"), cluster.client("admin")
    admin.write("/data/set", b"x")
    assert (cluster.home / "elsewhere/data/set").read_bytes() == b"x"
    assert alice.read("/data/set") == b"x"
    assert exception(alice.put("MKDIRS", "/user/alice/x")) == (403, "AccessControlException")
