"""Bytes that go between socket and disk past the event loop: connections go on, nobody is kept waiting."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from openpaisdk.errors import PaiError
from openpaisdk.fileio import hashing
from openpaisdk.storage.backends import descriptor_io
from openpaisdk.storage.backends.cluster import ClusterBackend, MultipartUpload
from paicluster.api.transfer import file_response, socket_io
from paicluster.files.transfer.range_hashes import RangeHash, RangeHashCache
from support.cli_user import until
from support.cluster_storage import storage_of
from support.team_cluster import TeamCluster

DEADLINE = 60.0
CONTENT = os.urandom(1 << 20) * 24


def test_parts_come_one_after_the_other_over_one_connection(team: TeamCluster) -> None:
    alice = storage_of(team, "alice", over_http=True).backend
    assert isinstance(alice, ClusterBackend)
    upload = alice.create("/user/alice/straight", (len(CONTENT), 10**18, 0o644), "k")
    line = http.client.HTTPConnection(*team.address, timeout=DEADLINE)
    headers = {"Authorization": f"Bearer {team.tokens['alice']}"}
    used = []
    for offset, length in upload.missing():
        part = CONTENT[offset : offset + length]
        body = part + hashing.of_bytes(part, hashing.XXH3)
        line.request("PUT", f"/api/v2/transfer/uploads/{upload.id}?offset={offset}", body, headers)
        used.append(line.sock.getsockname())
        reply = line.getresponse()
        reply.read()
        assert reply.status == 200 and reply.headers.get("connection") != "close"
        upload.digests[offset] = body[length:]
    # Other questions can be asked there too.
    line.request("GET", "/api/v2/transfer", headers=headers)
    assert b"xxh3" in line.getresponse().read()
    upload.finish(len(CONTENT))
    assert len(set(used)) == 1 and len(used) > 1
    assert b"".join(map(bytes, alice.read("/user/alice/straight"))) == CONTENT


def test_a_part_whose_bytes_are_already_here_when_its_head_is_read(team: TeamCluster) -> None:
    """However much of a body comes together with the head: all, half, or as much as one block."""
    alice = storage_of(team, "alice", over_http=True).backend
    assert isinstance(alice, ClusterBackend)
    at_once = socket_io.AT_ONCE
    for size in (1, 1000, at_once - 16, at_once, at_once + 1, 3 * at_once):
        content = os.urandom(size)
        upload = alice.create("/user/alice/sizes", (size, 10**18, 0o644), f"k{size}")
        upload.put(0, size, lambda content=content: iter((content,)))  # type: ignore[misc]
        upload.finish(size)
        assert b"".join(map(bytes, alice.read("/user/alice/sizes"))) == content


def test_a_client_that_sends_a_little_now_and_then_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the thread would rather be woken for more at once."""
    monkeypatch.setattr(socket_io, "_STANDSTILL_MS", 20)
    pieces = [os.urandom(100) for _ in range(5)]
    came: list[bytes] = []
    protocol = SimpleNamespace(received=0, transport=SimpleNamespace(is_closing=lambda: False))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            server.setblocking(False)
            pouring = threading.Thread(
                target=socket_io._receive_loop,
                args=(os.dup(server.fileno()), b"", 500, lambda data: came.append(bytes(data)), protocol),
                daemon=True,
            )
            pouring.start()
            for number, piece in enumerate(pieces, 1):
                client.sendall(piece)
                until(lambda number=number: protocol.received == 100 * number, DEADLINE)  # type: ignore[misc]
            pouring.join(DEADLINE)
            # The event loop gets it back as it was.
            assert server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
    assert b"".join(came) == b"".join(pieces)


def test_what_is_handed_over_has_hashes_too(team: TeamCluster, tmp_path: Path) -> None:
    alice = storage_of(team, "alice").backend
    assert isinstance(alice, ClusterBackend)
    (tmp_path / "f").write_bytes(CONTENT)
    upload = alice.create("/user/alice/handed", (len(CONTENT), 10**18, 0o644), "k")
    assert isinstance(upload, MultipartUpload) and upload.fileno() >= 0
    with (tmp_path / "f").open("rb") as f:
        for offset, length in upload.missing():
            said = descriptor_io.copy_hashed(
                f.fileno(), upload.fileno(), offset, length, upload.algorithm, threading.Lock()
            )
            assert said == (length, hashing.of_bytes(CONTENT[offset : offset + length], upload.algorithm))
            upload.mark(offset, length, said[1])
    again = alice.create("/user/alice/handed", (len(CONTENT), 10**18, 0o644), "k")
    assert again.missing() == [] and again.digests == upload.digests  # type: ignore[attr-defined]
    again.close()
    right, upload.digests[0] = upload.digests[0], bytes(16)
    with pytest.raises(PaiError, match="not what was sent"):
        upload.finish(len(CONTENT))
    upload.digests[0] = right
    upload.finish(len(CONTENT))
    assert b"".join(map(bytes, alice.read("/user/alice/handed"))) == CONTENT


def test_what_comes_over_http_goes_into_a_file_that_was_handed_over(team: TeamCluster) -> None:
    near = storage_of(team, "alice").backend
    far = storage_of(team, "alice", over_http=True).backend
    laid = near.create("/user/alice/far", (len(CONTENT), 10**18, 0o644), "k")
    for offset, length in laid.missing():
        laid.put(offset, length, lambda at=offset, size=length: iter((CONTENT[at : at + size],)))  # type: ignore[misc]
    laid.finish(len(CONTENT))
    outgoing = far.open("/user/alice/far")
    upload = near.create("/user/alice/near", (len(CONTENT), 10**18, 0o644), "k")
    assert isinstance(upload, MultipartUpload) and upload.fileno() >= 0 and outgoing.proves(upload.algorithm)
    with pytest.raises(PaiError, match="was cut"):
        upload.put(0, 8, lambda: iter((b"short",)))
    for offset, length in upload.missing():
        upload.put(offset, length, partial(outgoing.chunks, offset, length), outgoing)
        # It was proven on its way here, and that hash is the one of what was written.
        part = CONTENT[offset : offset + length]
        assert upload.digests[offset] == hashing.of_bytes(part, upload.algorithm)
    upload.finish(len(CONTENT))
    arrived = near.open("/user/alice/near")
    assert b"".join(map(bytes, arrived.chunks(0, arrived.size))) == CONTENT
    arrived.close()


class Answering:
    """A server that has one answer: a file."""

    def __init__(self, path: Path, *, hashed: bool = False):
        self.path = path
        self.given: list[socket_io.SendResult] = []
        self.done = threading.Event()
        config = uvicorn.Config(
            self._answer, http="httptools", log_level="error", interface="asgi3", lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.sock])))
        self.hashed = hashed
        self.proofs = RangeHashCache()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        from concurrent.futures import ThreadPoolExecutor

        size = self.path.stat().st_size
        extra = hashing.SIZE if self.hashed else 0
        files: Any = SimpleNamespace(threads=ThreadPoolExecutor(1))
        file = FileIO(self.path)
        proof = RangeHash(self.proofs, file.fileno(), 0, size, hashing.XXH3) if self.hashed else None
        headers = {"content-length": str(size + extra)}
        await file_response.RangeResponse(files, file, 0, size, headers, proof=proof)(scope, receive, send)
        self.done.set()

    def __enter__(self) -> Answering:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(DEADLINE)
        self.sock.close()


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[socket_io.SendResult]]]:
    """Says when a thread gave up waiting for somebody who takes nothing."""
    left, given = threading.Event(), []

    async def watched(*args: Any) -> socket_io.SendResult:
        found = await socket_io.send_file(*args)
        given.append(found)
        left.set()
        return found

    monkeypatch.setattr(socket_io, "_STANDSTILL_MS", 20)
    monkeypatch.setattr(file_response, "send_file", watched)
    yield left, given


@pytest.mark.parametrize("hashed", [False, True])
def test_whoever_takes_nothing_for_a_while_gets_the_rest_all_the_same(
    tmp_path: Path, stall: tuple[threading.Event, list[socket_io.SendResult]], hashed: bool
) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    left, given = stall
    with Answering(tmp_path / "f", hashed=hashed) as server:
        client = socket.create_connection(server.sock.getsockname(), timeout=DEADLINE)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert left.wait(DEADLINE)
        assert 0 < given[0].sent < len(CONTENT)
        got = bytearray()
        while data := client.recv(1 << 20):
            got += data
        client.close()
    body = bytes(got).partition(b"\r\n\r\n")[2]
    assert hashlib.sha256(body[: len(CONTENT)]).digest() == hashlib.sha256(CONTENT).digest()
    assert body[len(CONTENT) :] == (hashing.of_bytes(CONTENT, hashing.XXH3) if hashed else b"")


def test_whoever_leaves_in_the_middle_keeps_no_thread(
    tmp_path: Path, stall: tuple[threading.Event, list[socket_io.SendResult]]
) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with Answering(tmp_path / "f") as server:
        client = socket.create_connection(server.sock.getsockname(), timeout=DEADLINE)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1000)
        client.close()
        assert server.done.wait(DEADLINE)


def test_head_has_no_body(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with Answering(tmp_path / "f") as server:
        line = http.client.HTTPConnection(*server.sock.getsockname(), timeout=DEADLINE)
        for _ in range(2):
            line.request("HEAD", "/")
            reply = line.getresponse()
            assert reply.headers["content-length"] == str(len(CONTENT)) and reply.read() == b""
        line.close()
