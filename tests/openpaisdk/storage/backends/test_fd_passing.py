"""File descriptor passing over a Unix socket: between a client and the cluster of the same machine."""

from __future__ import annotations

import json
import os
import socket

import pytest

from openpaisdk.errors import Conflict, InvalidParameters, NotFound, PaiError
from openpaisdk.fileio import hashing
from openpaisdk.storage.backends.fd_passing import FdChannel
from support.cluster_storage import BASE, cluster_backend, pack, upload_request
from support.team_cluster import TeamCluster


def test_upload_finishes_only_after_its_descriptor_is_closed(team: TeamCluster, folder: str) -> None:
    handed = cluster_backend(team, "alice", over_http=False).descriptor_channel()
    assert handed is not None
    fd, said = handed.create(upload_request(f"{folder}/f", 5))
    assert fd >= 0 and said["have"] == {}
    os.write(fd, b"hello")
    proof = hashing.hash_bytes(b"hello", hashing.XXH3)
    handed.mark_written(str(said["id"]), 0, 5, proof)
    ended = {"size": 5, "mtime": 10**18, "digest": hashing.combine([proof], hashing.XXH3).hex()}
    with pytest.raises(Conflict, match="still open for writing"):
        handed.finish(str(said["id"]), ended)
    assert cluster_backend(team, "alice").status(f"{folder}/f") is None
    os.close(fd)
    handed.finish(str(said["id"]), ended)
    assert b"".join(map(bytes, cluster_backend(team, "alice").read(f"{folder}/f"))) == b"hello"


def test_descriptor_passed_for_reading_is_read_only(team: TeamCluster, folder: str) -> None:
    cluster_backend(team, "alice").send_pack(folder, pack(("f", b"hello")))
    handed = cluster_backend(team, "alice", over_http=False).descriptor_channel()
    assert handed is not None
    outgoing = handed.open(f"{folder}/f", "f")
    assert os.pread(outgoing.fileno(), 10, 0) == b"hello"
    with pytest.raises(OSError):
        os.write(outgoing.fileno(), b"x")
    outgoing.close()
    with pytest.raises(NotFound):
        handed.open(f"{folder}/none", "none")


def test_ticket_is_required_and_valid_once(team: TeamCluster) -> None:
    said = team.ask("POST", f"{BASE}/local").json()
    FdChannel(lambda: said)
    with pytest.raises((PaiError, OSError)):
        FdChannel(lambda: said)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
        talk.settimeout(90)
        talk.connect("\0" + said["socket"])
        talk.sendall(json.dumps({"op": "open", "path": "/user/alice"}).encode() + b"\n")
        assert talk.recv(100) == b""


def test_sessions_are_limited_per_user(team: TeamCluster) -> None:
    held: list[FdChannel] = []

    def talk(who: str) -> None:
        offer = team.ask("POST", f"{BASE}/local", token=team.tokens[who]).json()
        held.append(FdChannel(lambda: offer))

    with pytest.raises((PaiError, OSError)):
        for _ in range(64):
            talk("alice")
    before = len(held)
    talk("bob")
    assert 4 <= before < 64 and len(held) == before + 1
    for each in held:
        each.close()


def test_invalid_session_requests_are_rejected_with_a_message(team: TeamCluster) -> None:
    handed = cluster_backend(team, "alice", over_http=False).descriptor_channel()
    assert isinstance(handed, FdChannel)
    for question in (
        {"op": "what"},
        {"op": "mark"},
        {"op": "begin"},
        {"op": "finish", "id": "../x", "size": 1},
    ):
        with pytest.raises((InvalidParameters, NotFound, PaiError)):
            handed._request(question)
    with pytest.raises(NotFound):
        handed.mark_written("0" * 40, 0, 1, b"")
