"""PaddleCloud's simple files, published files and image registries."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from support.paddlecloud_cluster import put_package
from support.paddlecloud_go_client import Code, FileList, GoClient, Message, Registries
from support.team_cluster import TeamCluster

_numbers = itertools.count()


@pytest.fixture
def folder(go: GoClient) -> str:
    """A folder in alice's home that does not exist, as a path of the cloud."""
    return f"{go.home}/files-{next(_numbers)}"


def get(go: GoClient, path: str) -> bytes:
    reply = go.call("GET", f"/api/v1/file/?path={quote(path, safe='')}")
    assert reply.status_line == "HTTP/1.1 200 OK", reply
    assert reply.headers["content-type"] == "application/force-download"
    assert reply.headers["content-disposition"].startswith("attachment; filename=")
    return reply.body


def names(go: GoClient, path: str) -> FileList:
    return go.call("GET", f"/api/v1/filelist/?dc=dc1&path={quote(path, safe='')}").decode(FileList)


@pytest.mark.parametrize("data", [b"", b"print(1)\n", b"\r\n", b"\r\n--0f", bytes(range(256)) * 9000])
def test_upload_creates_folders_and_download_returns_the_bytes(
    go: GoClient, folder: str, data: bytes
) -> None:
    path = f"{folder}/a/b/train.py"
    assert go.put_file(path, data).decode(Message).msg == ""
    assert get(go, path) == data
    assert names(go, f"{folder}/a/b/") == FileList("", ["train.py"])


def test_upload_replaces_a_file(go: GoClient, folder: str) -> None:
    path = f"{folder}/f"
    for data in (b"first", b"second"):
        assert go.put_file(path, data).decode(Message).msg == ""
    assert get(go, path) == b"second"


def test_incomplete_upload_changes_nothing(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path = f"{folder}/kept"
    assert go.put_file(path, b"kept").decode(Message).msg == ""
    sent = go.sent[-1].partition(b"\r\n\r\n")[2]
    boundary = "0f" * 30
    for body, announced in ((sent[:-10], boundary), (sent[:20], boundary), (b"", boundary), (sent, "other")):
        reply = cluster.ask(
            "POST",
            f"/api/v1/file/?path={quote(path, safe='')}",
            body.replace(b"kept", b"lost"),
            {"Content-Type": f"multipart/form-data; boundary={announced}"},
        ).json()
        assert reply["code"] == 400
        assert "truncated" in reply["msg"]
    no_form = cluster.ask("POST", f"/api/v1/file/?path={quote(path, safe='')}", {"x": 1}).json()
    assert "must be a form" in no_form["msg"]
    no_field = sent.replace(b'name="file"', b'name="other"')
    reply = cluster.ask(
        "POST",
        f"/api/v1/file/?path={quote(path, safe='')}",
        no_field,
        {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    ).json()
    assert reply["msg"] == 'The form has no field "file".'
    assert get(go, path) == b"kept"
    staged = cluster.home / "storage" / ".pai" / "staged"
    assert list(staged.iterdir()) == []


def test_missing_file_is_not_stored_as_a_file_by_the_client(go: GoClient, folder: str) -> None:
    reply = go.call("GET", f"/api/v1/file/?path={quote(folder, safe='')}")
    assert reply.status_line == "HTTP/1.1 404 Not Found"
    assert reply.json()["msg"].startswith("file not exist")


def test_errors_of_paths(go: GoClient, folder: str) -> None:
    assert names(go, folder).msg == "dir not exist"
    assert "should be pfs path" in names(go, "/etc").msg
    assert "unauthorized" in names(go, "/pfs/dc1/home/bob").msg
    assert "unauthorized" in go.put_file("/pfs/dc1/home/bob/x", b"x").decode(Message).msg
    assert "unauthorized" in go.put_file(f"{go.home}/../bob/x", b"x").decode(Message).msg
    assert "public data" in go.put_file("/pfs/dc1/public/x", b"x").decode(Message).msg
    go.put_file(f"{folder}/f", b"x").decode(Message)
    assert names(go, f"{folder}/f").msg == "dir not exist"


def test_large_upload_is_streamed_to_the_disk(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    data = b"0123456789abcdef" * (1 << 20)
    assert go.put_file(f"{folder}/large", data).decode(Message).msg == ""
    assert get(go, f"{folder}/large") == data


def test_published_file_needs_no_token(cluster: TeamCluster, go: GoClient, folder: str) -> None:
    path = f"{folder}/model.tar"
    go.put_file(path, b"the model").decode(Message)
    url = go.call("POST", "/api/v1/publish/", {"path": path}).json()["url"]
    host, port = cluster.address
    assert url.startswith(f"http://{host}:{port}/filepub/?uuid=")
    assert go.call("POST", "/api/v1/publish/", {"path": path}).json()["url"] == url
    where = urlsplit(url)
    reply = cluster.ask("GET", f"{where.path}?{where.query}", token=None)
    assert (reply.status, reply.body) == (200, b"the model")
    listed = go.call("GET", "/api/v1/publish/").json()
    assert listed["urls"][listed["files"].index(path)] == url
    (cluster.home / "storage" / "user" / path.split("/", 4)[4]).unlink()
    assert cluster.ask("GET", f"{where.path}?{where.query}", token=None).status == 404
    assert cluster.ask("GET", "/filepub/?uuid=00000000-0000-4000-8000-000000000000", token=None).status == 404


def test_link_of_a_disabled_user_does_not_work(cluster: TeamCluster, bob: GoClient) -> None:
    path = f"{bob.home}/shared.tar"
    bob.put_file(path, b"x").decode(Message)
    link = urlsplit(bob.call("POST", "/api/v1/publish/", {"path": path}).json()["url"])
    for is_disabled, status in ((True, 404), (False, 200)):
        change = {"disabled": is_disabled}
        done = cluster.ask("PUT", "/api/v2/users/bob/disabled", change, token=cluster.tokens["admin"])
        assert done.status in (200, 201), done.text
        assert cluster.ask("GET", f"{link.path}?{link.query}", token=None).status == status


def test_only_own_files_can_be_published(go: GoClient, bob: GoClient, folder: str) -> None:
    go.put_file(f"{folder}/f", b"x").decode(Message)
    assert "unauthorized" in bob.call("POST", "/api/v1/publish/", {"path": f"{folder}/f"}).decode(Code).msg
    assert "folder" in go.call("POST", "/api/v1/publish/", {"path": folder}).decode(Code).msg
    assert "no such file" in go.call("POST", "/api/v1/publish/", {"path": f"{folder}/no"}).decode(Code).msg
    assert go.call("POST", "/api/v1/publish/", {"path": 1}).decode(Code).code == 400


def test_registry_is_stored_listed_used_deleted(cluster: TeamCluster, go: GoClient, bob: GoClient) -> None:
    secret = "a-very-secret-password"
    body = {"name": "pcloud-registry-hub", "username": "u", "password": secret, "server": "hub.example.org"}
    assert go.call("POST", "/api/v1/registry/", body).decode(Code) == Code(200, "")
    reply = go.call("GET", "/api/v1/registry/")
    listed = reply.decode(Registries).msg.items
    assert [one.metadata.name for one in listed] == ["pcloud-registry-hub"]
    assert secret.encode() not in reply.body
    assert bob.call("GET", "/api/v1/registry/").decode(Registries).msg.items == []
    put_package(cluster, "registry")
    # The Go client sends the name without the prefix.
    assert go.submit("registry", registry="hub", image="hub.example.org/image").decode(Message).msg == ""
    config = json.loads(cluster.get("/api/v2/jobs/alice~registry/config").text)
    assert config["prerequisites"][0]["auth"]["registryuri"] == "hub.example.org"
    assert secret not in json.dumps(config)
    assert go.call("DELETE", "/api/v1/jobs", {"jobname": "registry", "rm": True}).decode(Code).code == 200
    deleted = {"name": "pcloud-registry-hub", "username": "", "password": "", "server": ""}
    assert go.call("DELETE", "/api/v1/registry/", deleted).decode(Code) == Code(200, "")
    assert go.call("DELETE", "/api/v1/registry/", deleted).decode(Code) == Code(
        404, "There is no registry hub."
    )
    assert go.submit("registry", registry="hub").decode(Message).msg == "There is no registry hub."


@pytest.mark.parametrize("field", ["name", "username", "password", "server"])
def test_registry_needs_all_fields(go: GoClient, field: str) -> None:
    body = {"name": "pcloud-registry-x", "username": "u", "password": "p", "server": "s", field: ""}
    reply = go.call("POST", "/api/v1/registry/", body).decode(Code)
    assert reply.code == 400
    assert reply.msg.startswith(field)


def test_registry_password_is_sealed_in_the_database(cluster: TeamCluster, go: GoClient) -> None:
    secret = "another-secret-password"
    body = {"name": "pcloud-registry-sealed", "username": "u", "password": secret, "server": "s"}
    assert go.call("POST", "/api/v1/registry/", body).decode(Code).code == 200
    for file in Path(cluster.home).glob("cluster.db*"):
        assert secret.encode() not in file.read_bytes()
    go.call("DELETE", "/api/v1/registry/", {"name": "pcloud-registry-sealed"}).decode(Code)
