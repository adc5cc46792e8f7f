"""Transfer API of the cluster: packs, ranges, multipart uploads; permissions and invalid requests."""

from __future__ import annotations

import os
import socket

import pytest

from openpaisdk.storage.backends.cluster import ClusterBackend
from openpaisdk.storage.backends.resumable_upload import ResumableUpload
from paiprotocol.errors import Conflict, Forbidden
from paiprotocol.transfer import hashing, pack_format
from support.cluster_storage import BASE, cluster_backend, pack, upload_request
from support.team_cluster import TeamCluster


def put(upload: ResumableUpload, offset: int, data: bytes) -> None:
    upload.put(offset, len(data), lambda: iter((data,)))


def test_requests_without_a_token_are_rejected(team: TeamCluster) -> None:
    for method, path in [("GET", ""), ("GET", "/tree?path=/"), ("POST", "/pack?path=/"), ("POST", "/local")]:
        assert team.ask(method, BASE + path, token=None).status == 401


def test_pack_is_extracted_with_times_and_modes(team: TeamCluster, folder: str) -> None:
    alice = cluster_backend(team, "alice")
    assert alice.send_pack(folder, pack(("a", b"1"), ("deep/er/b", b"22"))) == []
    assert {f.path: list(f.files.items()) for f in alice.walk(folder)} == {
        "": [("a", [1, 10**18, 0])],
        "deep": [],
        "deep/er": [("b", [2, 10**18, 0])],
    }
    found = list(pack_format.read_pack(alice.fetch_pack(folder, ["deep/er/b", "none", "a"])))
    assert [(r.kind, r.name, bytes(r.content)) for r in found[::2]] == [
        (1, "deep/er/b", b"22"),
        (1, "a", b"1"),
    ]
    assert found[1].kind == pack_format.PROBLEM and b"does not exist" in bytes(found[1].content)


def test_damaged_file_in_a_pack_is_rejected_alone(team: TeamCluster, folder: str) -> None:
    alice = cluster_backend(team, "alice")
    bad = pack(("a", b"one"), ("b", b"two")).replace(b"one", b"onE")
    problems = alice.send_pack(folder, bad)
    assert [name for name, _ in problems] == ["a"]
    assert [e.name for e in alice.list_folder(folder)] == ["b"]


def test_truncated_pack_changes_nothing(team: TeamCluster, folder: str) -> None:
    whole = pack(("a", b"one"), ("b", b"two"))
    reply = team.ask("POST", f"{BASE}/pack?path={folder}", whole[:-10])
    assert reply.status == 400 and reply.json()["code"] == "CutPackError"
    assert cluster_backend(team, "alice").status(folder) is None


@pytest.mark.parametrize("name", ["../bob/x", "a/../../x", "/../x", "a:b", ".", "x/./y"])
def test_names_in_a_pack_cannot_leave_the_folder(team: TeamCluster, folder: str, name: str) -> None:
    alice = cluster_backend(team, "alice")
    assert len(alice.send_pack(folder, pack((name, b"1")))) == 1
    assert len(cluster_backend(team, "admin").send_pack("/", pack((".pai/partial/x", b"1")))) == 1
    assert alice.status(folder) is None


def test_files_of_other_users_are_inaccessible(team: TeamCluster, folder: str) -> None:
    alice, bob = cluster_backend(team, "alice"), cluster_backend(team, "bob")
    alice.send_pack(folder, pack(("secret", b"s")))
    path = f"{folder}/secret"
    assert [e.code for _, e in bob.send_pack(folder, pack(("mine", b"b")))] == ["ForbiddenFileError"]
    for attempt in (
        lambda: list(bob.walk(folder)),
        lambda: list(bob.read(path)),
        lambda: bob.create(path, (1, 1, 0o644), "k"),
    ):
        with pytest.raises(Forbidden):
            attempt()
    found = list(pack_format.read_pack(bob.fetch_pack(folder, ["secret"])))
    assert [r.kind for r in found] == [pack_format.PROBLEM]
    handed = cluster_backend(team, "bob", over_http=False).descriptor_channel()
    assert handed is not None
    with pytest.raises(Forbidden):
        handed.open(path, path)
    with pytest.raises(Forbidden):
        handed.create(upload_request(path, 1))


def test_ranges_are_sent_with_their_hash(team: TeamCluster, folder: str) -> None:
    alice = cluster_backend(team, "alice")
    content = os.urandom(700_000)
    alice.send_pack(folder, pack(("f", content)))
    for offset, length in ((0, 10), (5, 300_000), (699_999, 100), (700_000, 5), (0, -1)):
        wanted = content[offset : offset + length] if length >= 0 else content
        assert b"".join(map(bytes, alice.read(f"{folder}/f", offset, length))) == wanted


def test_parts_in_any_order_then_the_file_appears(team: TeamCluster, folder: str) -> None:
    alice = cluster_backend(team, "alice")
    content = os.urandom(20 << 20)
    upload = alice.create(f"{folder}/f", (len(content), 10**18 + 5, 0o600), "k")
    assert isinstance(upload, ResumableUpload)
    ranges = upload.missing_ranges()
    for offset, length in reversed(ranges):
        put(upload, offset, content[offset : offset + length])
        assert alice.status(f"{folder}/f") is None
    upload.finish(len(content))
    assert b"".join(map(bytes, alice.read(f"{folder}/f"))) == content
    assert alice._stat(f"{folder}/f") == (len(content), 10**18 + 5, 0o600)


def test_only_a_local_cluster_gets_larger_parts(team: TeamCluster, folder: str) -> None:
    """On a remote cluster an interruption would cost too much."""
    alice = cluster_backend(team, "alice")
    far = ClusterBackend(
        alice.pool, {**alice.capabilities, "boot": "another machine"}, url=alice.url, over_http=True
    )
    facts = (520 << 20, 10**18, 0o644)
    alice.write_bytes(f"{folder}/small", b"1", 10**18, 0o644)
    for backend, longest in ((alice, 64 << 20), (far, 32 << 20)):
        upload = backend.create(f"{folder}/f", facts, "k")
        assert upload.missing_ranges()[1] == (longest, longest)
        upload.abandon()
        assert backend.open(f"{folder}/small").max_part_bytes == longest


@pytest.mark.parametrize("over_http", [False, True])
def test_content_in_memory_may_have_several_parts(team: TeamCluster, folder: str, over_http: bool) -> None:
    alice = cluster_backend(team, "alice")
    backend = ClusterBackend(alice.pool, alice.capabilities, url=alice.url, over_http=over_http)
    content = os.urandom(1 << 20) * 17
    backend.write_bytes(f"{folder}/f", content, 10**18, 0o600)
    assert b"".join(map(bytes, alice.read(f"{folder}/f"))) == content
    with pytest.raises(Conflict):
        backend.write_bytes(f"{folder}/f", b"other", 10**18, 0o600, overwrite=False)
    assert alice._stat(f"{folder}/f")[0] == len(content)


def test_damaged_part_is_rejected(team: TeamCluster, folder: str) -> None:
    begun = team.ask("POST", f"{BASE}/uploads", upload_request(f"{folder}/f", 3)).json()
    where = f"{BASE}/uploads/{begun['id']}"
    reply = team.ask("PUT", where + "?offset=0", b"abc" + hashing.hash_bytes(b"abd", hashing.XXH3))
    assert (reply.status, reply.json()["code"]) == (400, "CutPartError")
    early = team.ask("POST", where + "/finish", {"size": 3})
    assert (early.status, early.json()["code"]) == (409, "IncompleteFileError")
    assert (
        team.ask("PUT", where + "?offset=0", b"abc" + hashing.hash_bytes(b"abc", hashing.XXH3)).status == 200
    )
    lie = team.ask("POST", where + "/finish", {"size": 3, "digest": "00" * 16})
    assert lie.status == 400
    assert team.ask("POST", where + "/finish", {"size": 3}).status == 200
    assert b"".join(map(bytes, cluster_backend(team, "alice").read(f"{folder}/f"))) == b"abc"


def test_upload_belongs_to_its_owner(team: TeamCluster, folder: str) -> None:
    begun = team.ask("POST", f"{BASE}/uploads", upload_request(f"{folder}/f", 3)).json()
    where = f"{BASE}/uploads/{begun['id']}"
    for method, path in (("PUT", "?offset=0"), ("DELETE", ""), ("POST", "/finish")):
        body = b"x" * 20 if method == "PUT" else {"size": 3}
        assert team.ask(method, where + path, body, token=team.tokens["bob"]).status == 404
    assert team.ask("DELETE", where).status == 200
    assert team.ask("DELETE", where).status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": -5},
        {"key": ""},
        {"partBytes": 1},
        {"hash": "md5"},
        {"path": "/a:b"},
        {"path": "x"},
        {"size": "x"},
    ],
)
def test_invalid_upload_request_is_rejected(team: TeamCluster, wrong: dict[str, object]) -> None:
    reply = team.ask("POST", f"{BASE}/uploads", {**upload_request("/user/alice/x", 3), **wrong})
    assert reply.status == 400, reply.text


def test_upload_survives_a_server_restart(team: TeamCluster, folder: str) -> None:
    content = os.urandom(20 << 20)
    facts = (len(content), 10**18, 0o644)
    first = cluster_backend(team, "alice").create(f"{folder}/f", facts, "k")
    assert isinstance(first, ResumableUpload)
    ranges = first.missing_ranges()
    put(first, *_piece(content, ranges[1]))
    team.kill()
    team.start()
    again = cluster_backend(team, "alice").create(f"{folder}/f", facts, "k")
    assert isinstance(again, ResumableUpload)
    assert again.missing_ranges() == [ranges[0], ranges[2]]
    for each in again.missing_ranges():
        put(again, *_piece(content, each))
    again.finish(len(content))
    assert b"".join(map(bytes, cluster_backend(team, "alice").read(f"{folder}/f"))) == content


def _piece(content: bytes, part: tuple[int, int]) -> tuple[int, bytes]:
    return part[0], content[part[0] : part[0] + part[1]]


def test_slow_clients_do_not_block_others(team: TeamCluster, folder: str) -> None:
    """Each client has sent half of a part and stalls: more clients than transfer threads."""
    content = os.urandom(3 << 20)
    waiting = []
    for i in range(12):
        begun = team.ask("POST", f"{BASE}/uploads", upload_request(f"{folder}/slow{i}", len(content))).json()
        slow = socket.create_connection(team.address)
        slow.sendall(
            f"PUT {BASE}/uploads/{begun['id']}?offset=0 HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {team.token}\r\nContent-Length: {len(content) + 16}\r\n\r\n".encode()
            + content[: 1 << 20]
        )
        waiting.append(slow)
    quick = cluster_backend(team, "alice").create(f"{folder}/quick", (len(content), 1, 0o644), "k")
    assert isinstance(quick, ResumableUpload)
    put(quick, 0, content)
    quick.finish(len(content))
    for slow in waiting:
        slow.sendall(content[1 << 20 :] + hashing.hash_bytes(content, hashing.XXH3))
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        slow.close()


def test_client_disconnect_during_a_part_is_harmless(team: TeamCluster, folder: str) -> None:
    for _ in range(20):
        begun = team.ask("POST", f"{BASE}/uploads", upload_request(f"{folder}/f", 3 << 20)).json()
        with socket.create_connection(team.address) as leaves:
            leaves.sendall(
                f"PUT {BASE}/uploads/{begun['id']}?offset=0 HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {team.token}\r\nContent-Length: {(3 << 20) + 16}\r\n\r\n".encode()
                + b"x" * 100_000
            )
    upload = cluster_backend(team, "alice").create(f"{folder}/f", (5, 1, 0o644), "k")
    assert isinstance(upload, ResumableUpload)
    put(upload, 0, b"12345")
    upload.finish(5)
    assert b"".join(map(bytes, cluster_backend(team, "alice").read(f"{folder}/f"))) == b"12345"
