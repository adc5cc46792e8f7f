"""PaddleCloud's file server: the chunk protocol as the Go client speaks it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from paicluster.api.paddlecloud import chunk_body
from support.paddlecloud_go_client import (
    BOUNDARY,
    ChunkMeta,
    ChunkMetaReply,
    EmptyReply,
    GoClient,
    LsReply,
    PathsReply,
    StatReply,
    TouchReply,
)
from support.team_cluster import TeamCluster

EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"
CHUNK = 4096
_numbers = itertools.count()


@pytest.fixture
def folder(go: GoClient) -> str:
    """A new folder in alice's home, as a path of the cloud."""
    path = f"{go.home}/chunks-{next(_numbers)}"
    reply = go.pfs("POST", "files", {"method": "mkdir", "path": [path]}).decode(PathsReply)
    assert reply.err == ""
    return path


def on_disk(cluster: TeamCluster, path: str) -> Path:
    """The file of a path of the cloud."""
    return cluster.home / "storage" / "user" / path.split("/", 4)[4]


def touch(go: GoClient, path: str, size: int) -> TouchReply:
    return go.pfs("POST", "files", {"method": "touch", "filesize": size, "path": path}).decode(TouchReply)


def upload(go: GoClient, path: str, data: bytes, size: int = CHUNK) -> int:
    """The client's upload: stat, touch, then every chunk that differs. Returns how many were sent."""
    stat = go.pfs("GET", f"files?method=stat&path={quote(path, safe='')}").decode(StatReply)
    assert stat.err == "" or "no such file or directory" in stat.err
    assert touch(go, path, len(data)).err == ""
    sent = 0
    for offset in range(0, len(data), size):
        part = data[offset : offset + size]
        meta = go.chunk_meta(path, offset, size).decode(ChunkMetaReply).results
        assert meta is not None
        if meta.checksum != hashlib.md5(part).hexdigest():
            assert go.post_chunk(path, offset, part).decode(EmptyReply).err == ""
            sent += 1
    return sent


def download(go: GoClient, path: str, offset: int, size: int) -> tuple[bytes, dict[str, Any]]:
    """Bytes and envelope of one chunk; the frame must be what Go's multipart writer writes."""
    reply = go.get_chunk(path, offset, size)
    assert reply.status_line == "HTTP/1.1 200 OK"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    query = f"chunksize={size}&offset={offset}&path={quote(path, safe='')}"
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="chunk"; filename="{query}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    assert reply.body.startswith(head), reply.body[:300]
    data, end, envelope = reply.body[len(head) :].rpartition(f"\r\n--{BOUNDARY}--\r\n".encode())
    assert end
    assert envelope.endswith(b"}\n")
    return data, json.loads(envelope)


def test_upload_sends_every_chunk_and_then_none(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    data = os.urandom(3 * CHUNK + 100)
    path = f"{folder}/data"
    assert upload(go, path, data) == 4
    assert on_disk(cluster, path).read_bytes() == data
    assert upload(go, path, data) == 0
    changed = data[:CHUNK] + b"!" + data[CHUNK + 1 :]
    assert upload(go, path, changed) == 1
    assert on_disk(cluster, path).read_bytes() == changed
    longer = changed + b"more"
    assert upload(go, path, longer) == 1
    assert on_disk(cluster, path).read_bytes() == longer
    assert upload(go, path, longer[:10]) == 0
    assert on_disk(cluster, path).read_bytes() == longer[:10]


def test_chunk_with_the_boundary_in_its_bytes(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    data = (f"\r\n--{BOUNDARY}--\r\n--{BOUNDARY}\r\n" * 100).encode()
    assert upload(go, f"{folder}/hostile", data) == 2
    assert on_disk(cluster, f"{folder}/hostile").read_bytes() == data


def test_download_of_chunks(go: GoClient, folder: str) -> None:
    data = os.urandom(CHUNK + 10)
    path = f"{folder}/file with spaces & ümlaut"
    upload(go, path, data)
    assert download(go, path, 0, CHUNK) == (data[:CHUNK], {"err": "", "results": None})
    assert download(go, path, CHUNK, 10) == (data[CHUNK:], {"err": "", "results": None})
    end = {"err": "this file reaches end", "results": None}
    assert download(go, path, CHUNK, CHUNK) == (data[CHUNK:], end)
    assert download(go, path, 10**9, 1) == (b"", end)
    missing, envelope = download(go, f"{folder}/missing", 0, CHUNK)
    assert missing == b""
    assert envelope["err"] == f"open {folder}/missing: no such file or directory"
    assert go.pfs("GET", "storage/chunks?path=x").body == b'{"err":"","results":null}\n'


def test_meta_of_chunks(go: GoClient, folder: str) -> None:
    data = os.urandom(CHUNK + 10)
    path = f"{folder}/meta"
    upload(go, path, data)

    def meta(offset: int, size: int = CHUNK) -> ChunkMeta | None:
        reply = go.chunk_meta(path, offset, size)
        assert reply.headers["content-type"] == "application/json; charset=UTF-8"
        assert reply.body.endswith(b"}\n")
        return reply.decode(ChunkMetaReply).results

    assert meta(0) == ChunkMeta(0, hashlib.md5(data[:CHUNK]).hexdigest(), CHUNK)
    assert meta(CHUNK) == ChunkMeta(CHUNK, hashlib.md5(data[CHUNK:]).hexdigest(), 10)
    for offset in (CHUNK + 10, 10**9):
        assert meta(offset) == ChunkMeta(offset, EMPTY_MD5, 0)
    for size in (4095, 33554433):
        assert go.chunk_meta(path, 0, size).decode(ChunkMetaReply).err == "chunksize error"
    assert go.pfs("GET", "chunks?method=GetChunkMeta").decode(ChunkMetaReply).err == "Bad Request"


def test_ls_stat_mkdir_and_rm(go: GoClient, folder: str) -> None:
    go.pfs("POST", "files", {"method": "mkdir", "path": [f"{folder}/b/c", f"{folder}/a"]}).decode(PathsReply)
    for name in ("b/c/deep", "b/x.txt", "b/y.txt", "top"):
        assert touch(go, f"{folder}/{name}", 7).err == ""

    def ls(path: str, r: str = "false") -> list[tuple[str, bool, int]] | None:
        reply = go.pfs("GET", f"files?arg={quote(path, safe='')}&method=ls&r={r}").decode(LsReply)
        assert reply.err == ""
        if reply.results is None:
            return None
        return [(one.path.removeprefix(folder), one.is_dir, one.size) for one in reply.results]

    assert ls(folder) == [("/a", True, 0), ("/b", True, 0), ("/top", False, 7)]
    assert ls(folder + "/", "true") == [
        ("/a", True, 0),
        ("/b", True, 0),
        ("/b/c", True, 0),
        ("/b/c/deep", False, 7),
        ("/b/x.txt", False, 7),
        ("/b/y.txt", False, 7),
        ("/top", False, 7),
    ]
    assert ls(f"{folder}//b/*.txt") == [("/b/x.txt", False, 7), ("/b/y.txt", False, 7)]
    assert ls(f"{folder}/top") == [("/top", False, 7)]
    assert ls(f"{folder}/a") is None
    stat = go.pfs("GET", f"files?method=stat&path={quote(folder, safe='')}%2Ftop").decode(StatReply).results
    assert stat is not None
    assert (stat.path, stat.size, stat.is_dir) == (f"{folder}/top", 7, False)
    assert stat.mod_time > 1_700_000_000_000_000_000
    missing = go.pfs("GET", f"files?method=stat&path={quote(folder, safe='')}%2Fno").decode(StatReply)
    assert missing.err == f"stat {folder}/no: no such file or directory"

    def rm(path: str, r: bool = False, method: str = "DELETE") -> PathsReply:
        return go.pfs(method, "files", {"method": "rm", "r": r, "path": [path]}).decode(PathsReply)

    assert rm(f"{folder}/b").err == f"can't del directory:{folder}/b"
    removed = rm(f"{folder}/b/*.txt", method="POST").results
    assert [one.path for one in removed or ()] == [f"{folder}/b/x.txt", f"{folder}/b/y.txt"]
    assert rm(f"{folder}/nothing").err == ""
    assert rm(f"{folder}/b", r=True).err == ""
    assert ls(folder) == [("/a", True, 0), ("/top", False, 7)]


def test_rename_of_a_file(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    def move(source: object, target: object) -> str:
        body = {"method": "mv", "path": source, "dest": target}
        return go.pfs("POST", "files", body).decode(TouchReply).err

    upload(go, f"{folder}/new", b"new")
    upload(go, f"{folder}/old", b"old")
    assert move(f"{folder}/new", f"{folder}/old") == ""
    assert on_disk(cluster, f"{folder}/old").read_bytes() == b"new"
    assert "no such file or directory" in move(f"{folder}/new", f"{folder}/other")
    assert move(f"{folder}/old", 1) == "not enough arguments"
    assert "can't mv directory" in move(folder, f"{folder}-2")
    assert "unauthorized" in move(f"{folder}/old", "/pfs/dc1/home/bob/taken")
    assert "unauthorized" in move("/pfs/dc1/home/bob/secret", f"{folder}/mine")
    assert "public data" in move(f"{folder}/old", "/pfs/dc1/public/mine")
    assert on_disk(cluster, folder).is_dir() and on_disk(cluster, f"{folder}/old").read_bytes() == b"new"


def test_unknown_methods_and_missing_arguments(go: GoClient, folder: str) -> None:
    empty = b'{"err":"","results":null}\n'
    for method, target, body in (
        ("GET", "files?method=nonsense", None),
        ("GET", "files", None),
        ("POST", "files", {"method": "nonsense", "path": [folder]}),
        ("GET", "chunks?method=nonsense", None),
    ):
        reply = go.pfs(method, target, body)
        assert reply.status_line.startswith("HTTP/1.1 405")
        assert reply.body == empty
    reserved = go.pfs("GET", "files?method=md5sum")
    assert (reserved.status_line, reserved.body) == ("HTTP/1.1 200 OK", b"")
    reply = go.pfs("POST", "storage/chunks", {})
    assert reply.status_line.startswith("HTTP/1.1 400")
    assert reply.body == empty
    home = quote(folder, safe="")
    for target, err in (
        (f"files?method=ls&arg={home}", "not enough arguments"),
        ("files?method=ls&r=true", "not enough arguments"),
        (f"files?method=ls&r=maybe&arg={home}", "invalid arguments:r"),
    ):
        assert go.pfs("GET", target).decode(LsReply).err == err
    assert go.pfs("POST", "files", [1]).decode(EmptyReply).err == "parse json error"
    assert touch(go, f"{folder}/x", -1).err == "bad file size:-1"
    assert touch(go, f"{folder}/x", (1 << 40) + 1).err == f"bad file size:{(1 << 40) + 1}"
    assert touch(go, folder, 1).err.startswith("directory already exist")
    assert "no such file or directory" in touch(go, f"{folder}/missing/x", 1).err
    assert touch(go, f"{folder}/file", 1).err == ""
    made = go.pfs("POST", "files", {"method": "mkdir", "path": [f"{folder}/file"]}).decode(PathsReply)
    assert made.err.startswith("already exist")
    below = f"{folder}/file/below"
    assert touch(go, below, 1).err == f"stat {below}: not a directory"
    assert go.chunk_meta(below, 0, CHUNK).decode(ChunkMetaReply).err == f"open {below}: not a directory"
    assert go.post_chunk(below, 0, b"x").decode(EmptyReply).err == f"open {below}: not a directory"


def test_reply_without_a_token_is_401(go: GoClient) -> None:
    go.token = "0" * 40
    reply = go.pfs("GET", "files?method=ls&r=false&arg=/pfs/dc1/home/alice")
    assert reply.status_line.startswith("HTTP/1.1 401")
    assert reply.json()["err"] == "get username error:server error: 401 Unauthorized"


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("/etc/passwd", "should be pfs path:/etc/passwd"),
        ("relative", "should be pfs path:relative"),
        ("/pfs/dc1/home/bob/x", "what you request is unauthorized"),
        ("/pfs/dc1/home/alice/../bob/x", "what you request is unauthorized"),
        ("/pfs/dc1/home/alice/../../../../../etc/passwd", "what you request is unauthorized"),
        ("/pfs/dc1/home", "the path should be in format"),
        ("/pfs/dc1/other/alice/x", "the path should be in format"),
        ("/pfs/dc1/home/alice/a\0b", "Invalid path name"),
    ],
)
def test_paths_outside_the_home_are_refused(go: GoClient, path: str, err: str) -> None:
    quoted = quote(path, safe="")
    replies = [
        go.pfs("GET", f"files?method=ls&r=true&arg={quoted}").decode(LsReply).err,
        go.pfs("GET", f"files?method=stat&path={quoted}").decode(StatReply).err,
        go.chunk_meta(path, 0, CHUNK).decode(ChunkMetaReply).err,
        download(go, path, 0, CHUNK)[1]["err"],
        touch(go, path, 1).err,
        go.pfs("POST", "files", {"method": "mkdir", "path": [path]}).decode(PathsReply).err,
        go.pfs("DELETE", "files", {"method": "rm", "r": True, "path": [path]}).decode(PathsReply).err,
        go.post_chunk(path, 0, b"x").decode(EmptyReply).err,
    ]
    for reply in replies:
        assert err in reply, replies
        assert "\n" not in reply


def test_links_are_not_followed(cluster: TeamCluster, go: GoClient, folder: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (on_disk(cluster, folder) / "link").symlink_to(tmp_path / "secret")
    (on_disk(cluster, folder) / "folder").symlink_to(tmp_path)
    for path in (f"{folder}/link", f"{folder}/folder/secret"):
        assert "no such file" in go.chunk_meta(path, 0, CHUNK).decode(ChunkMetaReply).err
        assert download(go, path, 0, CHUNK)[0] == b""
        assert go.post_chunk(path, 0, b"changed").decode(EmptyReply).err != ""
        touch(go, path, 3)
    go.pfs("DELETE", "files", {"method": "rm", "r": True, "path": [f"{folder}/folder"]}).decode(PathsReply)
    assert (tmp_path / "secret").read_text() == "secret"


def test_public_folder_is_read_only(cluster: TeamCluster, go: GoClient) -> None:
    admin = {"token": cluster.tokens["admin"]}
    path = "/webhdfs/v1/public/dataset/data?op=CREATE&data=true&overwrite=true&permission=644"
    assert cluster.ask("PUT", path, b"public data", **admin).status == 201
    public = "/pfs/dc1/public/dataset/data"
    stat = go.pfs("GET", f"files?method=stat&path={quote(public, safe='')}").decode(StatReply).results
    assert stat is not None
    assert stat.size == 11
    assert download(go, public, 0, 11)[0] == b"public data"
    meta = go.chunk_meta(public, 0, CHUNK).decode(ChunkMetaReply).results
    assert meta is not None
    assert meta.len == 11
    refused = "public data supports only ls or stat command"
    assert touch(go, public, 1).err == refused
    assert go.post_chunk(public, 0, b"x").decode(EmptyReply).err == refused


def test_bad_chunk_changes_nothing(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path = f"{folder}/kept"
    data = os.urandom(CHUNK)
    upload(go, path, data)
    whole = go.chunk_body(path, 0, b"x" * CHUNK)
    wrong_checksum = whole.replace(b"&path=", b"&checksum=" + EMPTY_MD5.encode() + b"&path=")
    right_checksum = whole.replace(
        b"&path=", b"&checksum=" + hashlib.md5(b"x" * CHUNK).hexdigest().encode() + b"&path="
    )
    for body, boundary, err in (
        (whole[:-60], BOUNDARY, "the chunk is incomplete"),
        (whole[: CHUNK // 2], BOUNDARY, "the chunk is incomplete"),
        (whole[:50], BOUNDARY, "truncated"),
        (whole[:-5], BOUNDARY, "the chunk is incomplete"),
        (whole[:-4], BOUNDARY, "truncated"),
        (b"", BOUNDARY, "does not begin with the boundary"),
        (whole, "another", "does not begin with the boundary"),
        (go.chunk_body(path, 0, b"x" * CHUNK, size=CHUNK - 1), BOUNDARY, "the chunk is incomplete"),
        (go.chunk_body(path, 0, b"x" * 10, size=CHUNK), BOUNDARY, "the chunk is incomplete"),
        (go.chunk_body(path, 1 << 40, b"x"), BOUNDARY, "bad file size"),
        (whole.replace(b'"chunk"', b'"other"'), BOUNDARY, 'no part named "chunk"'),
        (whole.replace(b"offset=0", b"offset=-1"), BOUNDARY, "must have path, offset and chunksize"),
        (wrong_checksum, BOUNDARY, "does not have the checksum"),
    ):
        reply = go.post_chunk_body(body, boundary).decode(EmptyReply)
        assert err in reply.err, (err, reply)
        assert "\n" not in reply.err
        assert on_disk(cluster, path).read_bytes() == data
    assert go.post_chunk(f"{folder}/missing", 0, b"x").decode(EmptyReply).err == (
        f"open {folder}/missing: no such file or directory"
    )
    assert go.post_chunk_body(right_checksum).decode(EmptyReply).err == ""
    assert on_disk(cluster, path).read_bytes() == b"x" * CHUNK


def test_body_that_ends_early_changes_nothing(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path = f"{folder}/kept"
    upload(go, path, b"kept")
    body = go.chunk_body(path, 0, b"lost")
    go.post_chunk_body(body[:-10], announced=len(body))
    assert on_disk(cluster, path).read_bytes() == b"kept"


def test_larger_chunk_than_the_bound_is_refused(go: GoClient, folder: str) -> None:
    path = f"{folder}/large"
    assert touch(go, path, 64 << 20).err == ""
    reply = go.post_chunk_body(b"", announced=(33 << 20) + 1)
    assert reply.status_line.startswith("HTTP/1.1 413")


def test_sparse_file_of_five_gigabytes(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path, size = f"{folder}/sparse", 5 << 30
    assert touch(go, path, size).err == ""
    assert go.post_chunk(path, size - 6, b"at end").decode(EmptyReply).err == ""
    status = on_disk(cluster, path).stat()
    assert status.st_size == size
    assert status.st_blocks * 512 < 1 << 20
    assert download(go, path, size - 10, 10)[0] == b"\0\0\0\0at end"
    meta = go.chunk_meta(path, size - 6, CHUNK).decode(ChunkMetaReply).results
    assert meta == ChunkMeta(size - 6, hashlib.md5(b"at end").hexdigest(), 6)
    removed = go.pfs("DELETE", "files", {"method": "rm", "r": False, "path": [path]}).decode(PathsReply)
    assert removed.err == ""


def test_file_that_shrinks_is_read_to_its_new_end(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path = f"{folder}/shrinks"
    upload(go, path, b"x" * CHUNK)
    meta = go.chunk_meta(path, 0, CHUNK).decode(ChunkMetaReply).results
    assert meta is not None
    assert touch(go, path, 5).err == ""
    assert download(go, path, 0, meta.len) == (b"x" * 5, {"err": "this file reaches end", "results": None})


def test_query_with_too_many_fields_names_no_chunk() -> None:
    assert chunk_body.read_range("path=/pfs/x&chunksize=4096" + "&offset=1" * 50) is None
