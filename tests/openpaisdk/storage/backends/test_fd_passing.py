"""File descriptor passing over a Unix socket: between a client and the cluster of the same machine."""

from __future__ import annotations

import json
import os
import socket

import pytest

from openpaisdk.client.http_errors import error_from_response
from openpaisdk.storage.backends.fd_passing import FdChannel
from paiprotocol.errors import Conflict, Forbidden, InvalidParameters, NotFound, PaiError, Unauthorized
from paiprotocol.transfer import hashing
from support.cluster_storage import BASE, cluster_backend, pack, upload_request
from support.server_fixture import eventually
from support.team_cluster import TeamCluster

DISABLED = "/api/v2/users/alice/disabled"


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


def test_session_ends_with_what_opened_it(team: TeamCluster, folder: str) -> None:
    """A client gets another one as long as it may, with the rights of that moment."""

    def begins(channel: FdChannel) -> bool:
        fd, _ = channel.create(upload_request(f"{folder}/f", 5))
        os.close(fd)
        return True

    def open_channel(token: str) -> FdChannel:
        def invite() -> dict[str, object]:
            reply = team.ask("POST", f"{BASE}/local", token=token)
            if reply.status != 200:
                raise error_from_response(reply.status, reply.body, "team")
            return dict(reply.json())

        return FdChannel(invite)

    ended, token = team.log_in("alice"), team.log_in("alice")
    first, second, idle = (
        open_channel(ended),
        open_channel(token),
        team.ask("POST", f"{BASE}/local", token=ended),
    )
    assert begins(first) and begins(second)
    assert team.ask("DELETE", "/api/v2/authn/basic/logout", token=ended).status == 200
    with pytest.raises(Unauthorized):
        begins(first)
    with pytest.raises((PaiError, OSError)):
        FdChannel(idle.json)
    assert begins(second)
    try:
        assert team.ask("PUT", DISABLED, {"disabled": True}, token=team.tokens["admin"]).status == 201
        with pytest.raises(PaiError, match="User alice is disabled"):
            begins(second)
    finally:
        assert team.ask("PUT", DISABLED, {"disabled": False}, token=team.tokens["admin"]).status == 201
    assert begins(second)


def test_file_that_outgrows_its_announced_size_is_emptied(team: TeamCluster, folder: str) -> None:
    """Also while its descriptor is open, so that it cannot fill the disk; nothing of it is published."""
    channel = cluster_backend(team, "alice", over_http=False).descriptor_channel()
    assert channel is not None
    fd, said = channel.create(upload_request(f"{folder}/f", 5))
    upload = str(said["id"])
    for _ in range(3):
        os.pwrite(fd, b"x" * 1_000_000, 0)
        eventually(lambda: os.fstat(fd).st_size == 0, "the end of the bytes that were not announced")
    os.pwrite(fd, b"hello", 0)
    proof = hashing.hash_bytes(b"hello", hashing.XXH3)
    channel.mark_written(upload, 0, 5, proof)
    os.close(fd)
    digest = hashing.combine([proof], hashing.XXH3).hex()
    with pytest.raises(InvalidParameters, match="More than the announced 5 bytes"):
        channel.finish(upload, {"size": 5, "mtime": 10**18, "digest": digest})
    assert cluster_backend(team, "alice").status(f"{folder}/f") is None
    with pytest.raises(InvalidParameters, match="announces its size"):
        channel.create(upload_request(f"{folder}/f", -1))


def test_file_of_a_dropped_upload_is_emptied(team: TeamCluster, folder: str) -> None:
    """It counts for no quota any more, and exists as long as the client keeps its descriptor."""
    channel = cluster_backend(team, "alice", over_http=False).descriptor_channel()
    assert channel is not None
    fd, said = channel.create(upload_request(f"{folder}/f", 1_000_000))
    os.pwrite(fd, b"x" * 1_000_000, 0)
    assert team.ask("DELETE", f"{BASE}/uploads/{said['id']}").status == 200
    eventually(lambda: os.fstat(fd).st_size == 0, "the end of the bytes of a deleted file")
    os.pwrite(fd, b"x" * 1000, 0)
    eventually(lambda: os.fstat(fd).st_size == 0, "the end of what was written later")
    os.close(fd)


def test_session_has_the_rights_of_its_user_as_they_are_now(team: TeamCluster) -> None:
    upload = upload_request("/of-the-administrator", 5)
    with team.as_administrator("bob"):
        channel = cluster_backend(team, "bob", over_http=False).descriptor_channel()
        assert channel is not None
        os.close(channel.create(upload)[0])
    with pytest.raises(Forbidden):
        channel.create(upload)


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
