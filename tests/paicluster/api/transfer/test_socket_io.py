"""Socket I/O by threads: connections stay usable, stalled clients occupy no thread."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from openpaisdk.storage.backends import descriptor_io
from openpaisdk.storage.backends.cluster import ClusterBackend
from openpaisdk.storage.backends.resumable_upload import ResumableUpload
from paicluster.api.transfer import file_response, socket_io
from paicluster.files.transfer.range_hashes import RangeHash, RangeHashCache
from paiprotocol.errors import PaiError
from paiprotocol.transfer import hashing
from support.cli_user import until
from support.cluster_storage import storage_of
from support.team_cluster import TeamCluster

DEADLINE = 60.0
CONTENT = os.urandom(1 << 20) * 24


def test_parts_share_one_connection(team: TeamCluster) -> None:
    alice = storage_of(team, "alice", over_http=True).backend
    assert isinstance(alice, ClusterBackend)
    upload = alice.create("/user/alice/parts", (len(CONTENT), 10**18, 0o644), "k")
    connection = http.client.HTTPConnection(*team.address, timeout=DEADLINE)
    headers = {"Authorization": f"Bearer {team.tokens['alice']}"}
    addresses = []
    for offset, length in upload.missing_ranges():
        part = CONTENT[offset : offset + length]
        body = part + hashing.hash_bytes(part, hashing.XXH3)
        connection.request("PUT", f"/api/v2/transfer/uploads/{upload.id}?offset={offset}", body, headers)
        addresses.append(connection.sock.getsockname())
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200 and reply.headers.get("connection") != "close"
        upload.digests[offset] = body[length:]
    # The connection accepts other requests afterwards.
    connection.request("GET", "/api/v2/transfer", headers=headers)
    assert b"xxh3" in connection.getresponse().read()
    upload.finish(len(CONTENT))
    assert len(set(addresses)) == 1 and len(addresses) > 1
    assert b"".join(map(bytes, alice.read("/user/alice/parts"))) == CONTENT


def test_body_received_together_with_the_head(team: TeamCluster) -> None:
    """For any size of body: smaller than the buffer, equal, larger."""
    alice = storage_of(team, "alice", over_http=True).backend
    assert isinstance(alice, ClusterBackend)
    buffer_size = socket_io.RECEIVE_BUFFER_BYTES
    for size in (1, 1000, buffer_size - 16, buffer_size, buffer_size + 1, 3 * buffer_size):
        content = os.urandom(size)
        upload = alice.create("/user/alice/sizes", (size, 10**18, 0o644), f"k{size}")
        upload.put(0, size, lambda content=content: iter((content,)))  # type: ignore[misc]
        upload.finish(size)
        assert b"".join(map(bytes, alice.read("/user/alice/sizes"))) == content


def test_slow_client_is_received() -> None:
    """Although the thread waits for larger pieces first."""
    pieces = [os.urandom(100) for _ in range(5)]
    received: list[bytes] = []
    protocol = SimpleNamespace(received_bytes=0, transport=SimpleNamespace(is_closing=lambda: False))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            server.setblocking(False)
            receiver = threading.Thread(
                target=socket_io._receive_loop,
                args=(os.dup(server.fileno()), b"", 500, lambda data: received.append(bytes(data)), protocol),
                kwargs={"stall_timeout_ms": 20},
                daemon=True,
            )
            receiver.start()
            for number, piece in enumerate(pieces, 1):
                client.sendall(piece)
                until(lambda number=number: protocol.received_bytes == 100 * number, DEADLINE)  # type: ignore[misc]
            receiver.join(DEADLINE)
            # The socket option is reset for the event loop.
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
    assert b"".join(received) == b"".join(pieces)


def test_passed_fd_upload_is_hashed(team: TeamCluster, tmp_path: Path) -> None:
    alice = storage_of(team, "alice").backend
    assert isinstance(alice, ClusterBackend)
    (tmp_path / "f").write_bytes(CONTENT)
    upload = alice.create("/user/alice/passed", (len(CONTENT), 10**18, 0o644), "k")
    assert isinstance(upload, ResumableUpload) and upload.fileno() >= 0
    with (tmp_path / "f").open("rb") as f:
        for offset, length in upload.missing_ranges():
            result = descriptor_io.copy_hashed(
                f.fileno(), upload.fileno(), offset, length, upload.algorithm, threading.Lock(), "f"
            )
            assert result == (length, hashing.hash_bytes(CONTENT[offset : offset + length], upload.algorithm))
            upload.mark_written(offset, length, result[1])
    again = alice.create("/user/alice/passed", (len(CONTENT), 10**18, 0o644), "k")
    assert again.missing_ranges() == [] and again.digests == upload.digests  # type: ignore[attr-defined]
    again.close()
    right, upload.digests[0] = upload.digests[0], bytes(16)
    with pytest.raises(PaiError, match="does not match its hash"):
        upload.finish(len(CONTENT))
    upload.digests[0] = right
    upload.finish(len(CONTENT))
    assert b"".join(map(bytes, alice.read("/user/alice/passed"))) == CONTENT


def test_http_download_into_a_passed_fd(team: TeamCluster) -> None:
    near = storage_of(team, "alice").backend
    far = storage_of(team, "alice", over_http=True).backend
    source = near.create("/user/alice/far", (len(CONTENT), 10**18, 0o644), "k")
    for offset, length in source.missing_ranges():
        source.put(offset, length, lambda at=offset, size=length: iter((CONTENT[at : at + size],)))  # type: ignore[misc]
    source.finish(len(CONTENT))
    outgoing = far.open("/user/alice/far")
    upload = near.create("/user/alice/near", (len(CONTENT), 10**18, 0o644), "k")
    assert (
        isinstance(upload, ResumableUpload)
        and upload.fileno() >= 0
        and outgoing.provides_digests(upload.algorithm)
    )
    with pytest.raises(PaiError, match="was truncated"):
        upload.put(0, 8, lambda: iter((b"short",)))
    for offset, length in upload.missing_ranges():
        upload.put(offset, length, partial(outgoing.chunks, offset, length), outgoing)
        # It was verified during the download, and that hash is the hash of the written bytes.
        part = CONTENT[offset : offset + length]
        assert upload.digests[offset] == hashing.hash_bytes(part, upload.algorithm)
    upload.finish(len(CONTENT))
    arrived = near.open("/user/alice/near")
    assert b"".join(map(bytes, arrived.chunks(0, arrived.size))) == CONTENT
    arrived.close()


class FileServer:
    """HTTP server that responds with one file."""

    def __init__(self, path: Path, *, hashed: bool = False):
        self.path = path
        self.done = threading.Event()
        config = uvicorn.Config(
            self._respond, http="httptools", log_level="error", interface="asgi3", lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.sock])))
        self.hashed = hashed
        self.range_hashes = RangeHashCache()

    async def _respond(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        from concurrent.futures import ThreadPoolExecutor

        size = self.path.stat().st_size
        extra = hashing.DIGEST_BYTES if self.hashed else 0
        files: Any = SimpleNamespace(threads=ThreadPoolExecutor(1))
        file = FileIO(self.path)
        range_hash = (
            RangeHash(self.range_hashes, file.fileno(), 0, size, hashing.XXH3) if self.hashed else None
        )
        headers = {"content-length": str(size + extra)}
        rights: Any = SimpleNamespace(cutting=lambda _: nullcontext())
        await file_response.RangeResponse(
            files, file, 0, size, headers, rights=rights, range_hash=range_hash
        )(scope, receive, send)
        self.done.set()

    def __enter__(self) -> FileServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(DEADLINE)
        self.sock.close()


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[socket_io.SendResult]]]:
    """Event that is set when a thread stops waiting for a stalled client, and the results of `send_file`."""
    stalled, results = threading.Event(), []

    async def send_and_report(*args: Any) -> socket_io.SendResult:
        result = await socket_io.send_file(*args, stall_timeout_ms=20)
        results.append(result)
        stalled.set()
        return result

    monkeypatch.setattr(file_response, "send_file", send_and_report)
    yield stalled, results


@pytest.mark.parametrize("hashed", [False, True])
def test_stalled_client_gets_the_rest_later(
    tmp_path: Path, stall: tuple[threading.Event, list[socket_io.SendResult]], hashed: bool
) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    stalled, results = stall
    with FileServer(tmp_path / "f", hashed=hashed) as server:
        client = socket.create_connection(server.sock.getsockname(), timeout=DEADLINE)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert stalled.wait(DEADLINE)
        assert 0 < results[0].sent < len(CONTENT)
        got = bytearray()
        while data := client.recv(1 << 20):
            got += data
        client.close()
    body = bytes(got).partition(b"\r\n\r\n")[2]
    assert hashlib.sha256(body[: len(CONTENT)]).digest() == hashlib.sha256(CONTENT).digest()
    assert body[len(CONTENT) :] == (hashing.hash_bytes(CONTENT, hashing.XXH3) if hashed else b"")


def test_disconnected_client_releases_its_thread(
    tmp_path: Path, stall: tuple[threading.Event, list[socket_io.SendResult]]
) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with FileServer(tmp_path / "f") as server:
        client = socket.create_connection(server.sock.getsockname(), timeout=DEADLINE)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1000)
        client.close()
        assert server.done.wait(DEADLINE)


def test_head_has_no_body(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with FileServer(tmp_path / "f") as server:
        connection = http.client.HTTPConnection(*server.sock.getsockname(), timeout=DEADLINE)
        for _ in range(2):
            connection.request("HEAD", "/")
            reply = connection.getresponse()
            assert reply.headers["content-length"] == str(len(CONTENT)) and reply.read() == b""
        connection.close()
