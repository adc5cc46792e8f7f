"""Storages in a cloud as storages of a cluster: who sees them, and how their credentials reach tasks."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support.cli_user import CliUser
from support.cloud_servers import ACCESS_KEY, AZURE_ACCOUNT, AZURE_KEY, SECRET_KEY, CloudServer
from support.object_server import ObjectServer
from support.openapi_check import current_description
from support.server_fixture import Reply, eventually, job
from support.team_cluster import MACHINE, USERS, NewTeam, TeamCluster, add_users

SECRET = "cloud-secret-0123456789"
LARGE = bytes(range(256)) * 20_000  # more than a block


def credentials_file(path: Path, **values: str) -> Path:
    path.write_text("".join(f"{key.replace('_', '-')}: {value}\n" for key, value in values.items()))
    path.chmod(0o600)
    return path


def add_group(cluster: TeamCluster, group: str, user: str, storage: str) -> None:
    """A group with one user, which may use one storage."""
    admin = cluster.admin_token()
    acls = {"admin": False, "virtualClusters": ["default"], "storageConfigs": [storage]}
    body = {"groupname": group, "description": "", "externalName": "", "extension": {"acls": acls}}
    reply = cluster.ask("POST", "/api/v2/groups", body, token=admin)
    assert reply.status == 201, reply.text
    reply = cluster.ask("PUT", f"/api/v2/users/{user}/group", {"groupname": group}, token=admin)
    assert reply.status in (200, 201), reply.text


@pytest.fixture(scope="module")
def s3_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("credentials") / "s3.yaml"
    return credentials_file(path, access_key_id="KEYID", secret_access_key=SECRET)


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectServer]:
    served = ObjectServer({"file": LARGE})
    yield served
    served.close()


@pytest.fixture(scope="module")
def vision(
    s3_file: Path, objects: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TeamCluster]:
    """A cluster whose storage `sets` is on S3, for the group `vision`, to which alice belongs.

    All users may read the storage `shelf`.
    """
    folder = tmp_path_factory.mktemp("vision")
    shelf_file = credentials_file(folder / "shelf.yaml", access_key_id="SHELF", secret_access_key="open")
    (folder / "cluster.yaml").write_text(
        "storages:\n"
        "  - {name: home, type: own}\n"
        "  - {name: sets, type: s3, bucket: team-data, prefix: vision, region: eu-central-1,\n"
        f"     endpoint-url: 'http://127.0.0.1:9', credentials: {s3_file}, groups: [vision], mount: false}}\n"
        "  - {name: shelf, type: s3, bucket: books, region: us-east-1, mount: false,\n"
        f"     endpoint-url: '{objects.url}', credentials: {shelf_file}}}\n"
    )
    add_users(folder / "home")
    cluster = TeamCluster(folder / "home", ("--config", str(folder / "cluster.yaml"), *MACHINE))
    try:
        cluster.start()
        cluster.description = current_description(thorough=True)
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        add_group(cluster, "vision", "alice", "sets")
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


def test_credentials_reach_the_tasks_of_the_group_and_nothing_else(vision: TeamCluster) -> None:
    script = (
        "echo key=$AWS_ACCESS_KEY_ID region=$AWS_DEFAULT_REGION at=$AWS_ENDPOINT_URL_S3; "
        "echo url=$PAI_STORAGE_SETS; "
        f'[ "$AWS_SECRET_ACCESS_KEY" = {SECRET[:10]}"{SECRET[10:]}" ] && echo has the secret; '
        "echo shown: $AWS_SECRET_ACCESS_KEY"
    )
    named = vision.run(job("named", script, extras={"storages": [{"name": "sets"}]}))
    assert named["state"] == "SUCCEEDED"
    log = vision.log_of("named").decode()
    assert "key=KEYID region=eu-central-1 at=http://127.0.0.1:9\nurl=s3://team-data/vision\n" in log
    assert "has the secret" in log
    assert SECRET not in log.split("shown:")[1]
    vision.run(job("unnamed", "env"))
    assert "AWS_" not in vision.log_of("unnamed").decode()
    bob = vision.tokens["bob"]
    refused = vision.submit(job("foreign", "env", extras={"storages": [{"name": "sets"}]}), token=bob)
    assert refused.status == 403
    written = [vision.log.read_text(), vision.get(vision.path("named", "/config")).text]
    written += [json.dumps(vision.events("named")), json.dumps(vision.detail("named"))]
    assert not [text for text in written if SECRET in text]


def test_only_the_group_sees_the_storage_and_its_credentials(vision: TeamCluster) -> None:
    detail = vision.get("/api/v2/storages/sets").json()
    assert detail["type"] == "s3"
    assert detail["data"] == {
        "bucket": "team-data",
        "region": "eu-central-1",
        "endpointUrl": "http://127.0.0.1:9",
        "rootPath": "vision",
        "accessKeyId": "KEYID",
        "secretAccessKey": SECRET,
    }
    bob = vision.tokens["bob"]
    assert vision.get("/api/v2/storages/sets", token=bob).status == 403
    for path in ("/api/v2/storages", "/api/v2/storage/config", "/api/v2/storage/server"):
        reply = vision.get(path, token=bob)
        assert reply.status == 200 and SECRET not in reply.text and "sets" not in reply.text
    assert SECRET not in vision.get("/api/v2/storages").text


def test_new_credentials_apply_without_a_restart(vision: TeamCluster, s3_file: Path) -> None:
    before = s3_file.read_bytes()
    try:
        credentials_file(s3_file, access_key_id="NEWID", secret_access_key="rotated-secret")
        assert vision.get("/api/v2/storages/sets").json()["data"]["accessKeyId"] == "NEWID"
        s3_file.chmod(0o644)
        vision.run(job("later", "echo ${AWS_ACCESS_KEY_ID:-none}", extras={"storages": [{"name": "sets"}]}))
        assert vision.log_of("later").decode().strip().endswith("none")
        reasons = [event["reason"] for event in vision.events("later")]
        assert "StorageCredentialsMissing" in reasons
        assert "rotated-secret" not in vision.log.read_text()
    finally:
        s3_file.write_bytes(before)
        s3_file.chmod(0o600)


CONTENT = "/api/v2/storages/shelf/content?path=/file"


def test_head_of_a_file_reads_none_of_it(vision: TeamCluster, objects: ObjectServer) -> None:
    objects.requests.clear()
    connection = vision.connect()
    connection.request("HEAD", CONTENT, headers={"Authorization": f"Bearer {vision.token}"})
    head = connection.getresponse()
    assert (head.status, head.headers["content-length"], head.read()) == (200, str(len(LARGE)), b"")
    connection.close()
    assert objects.requests == ["HEAD file"]


def test_download_ends_with_its_token_and_gives_its_place_back(
    vision: TeamCluster, objects: ObjectServer
) -> None:
    token = vision.log_in("bob")
    responses = []
    objects.gate.clear()
    try:
        for _ in range(4):
            connection = vision.connect()
            connection.request("GET", CONTENT, headers={"Authorization": f"Bearer {token}"})
            responses.append(connection.getresponse())
        refused = vision.get(CONTENT, token=token)
        assert refused.status == 503
        assert (
            refused.json()["message"] == "User bob has 4 downloads from remote storages, which is the limit."
        )
        assert vision.ask("DELETE", f"/api/v2/tokens/{token}", token=token).status == 200
    finally:
        objects.gate.set()
    for response in responses:
        assert response.status == 200
        with pytest.raises(http.client.IncompleteRead):
            response.read()
    again = eventually(
        lambda: reply if (reply := vision.get(CONTENT, token=vision.tokens["bob"])).status == 200 else None,
        "an own download",
    )
    assert again.body == LARGE


def test_credentials_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("storages:\n  - {name: sets, type: s3, bucket: b, credentials: absent.yaml}\n")
    done = CliUser(tmp_path / "user").run(
        [
            *("paicluster", "serve", "--config", str(config), "--home", str(tmp_path / "home")),
            *("--port", "0", "--allow-shared-account"),
        ]
    )
    assert done.status != 0
    assert "absent.yaml cannot be read: No such file or directory." in done.err
    assert "Traceback" not in done.err


def bucket_settings(server: CloudServer, prefix: str) -> str:
    """Without credentials."""
    return (
        f"type: s3, bucket: team-data, prefix: {prefix}, region: us-east-1, endpoint-url: '{server.endpoint}'"
    )


def with_keys(folder: Path, settings: str) -> str:
    """Settings of a bucket, with the right credentials."""
    keys = credentials_file(folder / "s3.yaml", access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
    return f"{settings}, credentials: {keys}"


def container_settings(folder: Path, server: CloudServer, prefix: str) -> str:
    keys = credentials_file(folder / "azure.yaml", account_key=AZURE_KEY)
    return (
        f"type: azureblob, container: team-data, account: {AZURE_ACCOUNT}, prefix: {prefix}, "
        f"credentials: {keys}, share: false, endpoint-url: '{server.endpoint}/{AZURE_ACCOUNT}'"
    )


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("cloud")
def test_user_copies_to_the_storage_with_its_credentials(
    new_team: NewTeam, tmp_path: Path, s3_server: CloudServer, azure_server: CloudServer
) -> None:
    prefix = f"cluster-{os.getpid()}"
    bucket = with_keys(tmp_path, bucket_settings(s3_server, prefix))
    blobs = container_settings(tmp_path, azure_server, prefix)
    cluster = new_team(
        "storages:\n"
        "  - {name: home, type: own}\n"
        f"  - {{name: sets, {bucket}}}\n"
        f"  - {{name: blobs, {blobs}}}\n"
        f"  - {{name: old, read-only: true, {bucket}}}\n"
    )
    person = CliUser(tmp_path / "person")
    added = person.pai(
        *(
            "add-cluster",
            "-a",
            "team",
            "--pai-uri",
            f"http://127.0.0.1:{cluster.address[1]}",
            "--user",
            "alice",
        ),
        *("--authen-token", cluster.token),
    )
    assert added.status == 0, added
    listed = person.pai("list-storages", "team").out
    assert f"/team-data/{prefix}" in listed and s3_server.endpoint in listed
    assert SECRET_KEY not in listed + person.pai("list-storages", "team", "-o", "json").out
    (person.project / "file").write_text("content")
    for storage in ("sets", "blobs"):
        done = person.pai("copy", "file", f"pai://team/{storage}/folder/file")
        assert done.status == 0, done
        assert person.pai("copy", f"pai://team/{storage}/folder/file", "-").out == "content"
    blob = person.pai("copy", f"{azure_server.url}/{prefix}/alice/folder/file", "-", env=azure_server.env)
    assert blob.out == "content", blob
    denied = person.pai("copy", "file", "pai://team/old/other")
    assert denied.status == 1 and "pai://team/old/other: the storage is read-only." in denied.err
    own = person.pai(
        *("add-storage-cluster", "-a", "mine", "--type", "s3", "--address", s3_server.endpoint),
        *("--path", f"/team-data/{prefix}", "configs:region=us-east-1"),
    )
    assert own.status == 0, own
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    assert person.pai("listdir", "pai://mine/0/folder", env=keys).out == "file\n"


def entries(cluster: TeamCluster, storage: str, path: str, **more: str) -> Reply:
    query = "&".join(f"{name}={quote(value)}" for name, value in {"path": path, **more}.items())
    return cluster.get(f"/api/v2/storages/{storage}/entries?{query}")


def names(reply: Reply) -> list[tuple[str, str, int]]:
    assert reply.status == 200, reply.text
    return [(one["name"], one["type"], one["size"]) for one in reply.json()["entries"]]


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("cloud")
def test_users_list_and_read_storages_in_clouds(
    new_team: NewTeam, tmp_path: Path, s3_server: CloudServer, azure_server: CloudServer
) -> None:
    prefix = f"browse-{os.getpid()}"
    bare = bucket_settings(s3_server, prefix)
    bucket = with_keys(tmp_path, bare)
    blobs = container_settings(tmp_path, azure_server, prefix)
    cluster = new_team(
        "storages:\n"
        "  - {name: home, type: own}\n"
        f"  - {{name: sets, {bucket}}}\n"
        f"  - {{name: blobs, {blobs}}}\n"
        f"  - {{name: closed, {bucket}, groups: [others]}}\n"
        f"  - {{name: bare, {bare}}}\n"
    )
    person = CliUser(tmp_path / "person")
    (person.project / "large.bin").write_bytes(LARGE)
    (person.project / "a b.txt").write_text("hello")
    for server, below in ((s3_server, ""), (azure_server, "/alice"), (azure_server, "/bob")):
        for file in ("large.bin", "folder/a b.txt"):
            source = file.rpartition("/")[2]
            done = person.pai("copy", source, f"{server.url}/{prefix}{below}/{file}", env=server.env)
            assert done.status == 0, done

    for storage in ("sets", "blobs"):
        root = entries(cluster, storage, "/")
        assert names(root) == [("folder", "directory", 0), ("large.bin", "file", len(LARGE))]
        assert root.json()["entries"][1]["modifiedTime"] > 1_600_000_000_000
        assert names(entries(cluster, storage, "/folder/")) == [("a b.txt", "file", 5)]
        assert entries(cluster, storage, "/folder/a b.txt").json()["file"]["size"] == 5
        missing = entries(cluster, storage, "/nothing")
        assert missing.status == 404 and "no such file or folder" in missing.json()["message"]
        content = f"/api/v2/storages/{storage}/content?path="
        assert cluster.get(f"{content}/large.bin").body == LARGE
        start = cluster.get(f"{content}/folder/a%20b.txt&length=4")
        assert (start.body, start.headers["content-disposition"]) == (
            b"hell",
            "attachment; filename*=UTF-8''a%20b.txt",
        )
        link = cluster.ask("POST", f"/api/v2/storages/{storage}/content-link?path=/folder/a%20b.txt")
        url = f"/{link.json()['url']}"
        assert cluster.get(url, token=None).body == b"hello"
        assert cluster.get(url.replace("a+b.txt", "other"), token=None).status == 401
        assert cluster.get(url.replace("user=alice", "user=bob"), token=None).status == 401
        for path in ("/../x", "/folder/../..", "/" + "x" * 2000):
            assert entries(cluster, storage, path).status == 400, path

    described = [cluster.get(f"/api/v2/storages/{name}?secrets=false").json() for name in ("sets", "blobs")]
    assert SECRET_KEY not in str(described) and AZURE_KEY not in str(described)
    assert described[0]["data"]["bucket"] == "team-data"
    # No user sees more than the storage shows.
    assert cluster.get("/api/v2/storages/closed/entries?path=/").status == 403
    assert entries(cluster, "blobs", "/bob").status == 404
    unreadable = entries(cluster, "bare", "/")
    assert (unreadable.status, unreadable.json()["code"]) == (403, "NoStorageCredentialsError")
    own = entries(cluster, "home", "/")
    assert (own.status, own.json()["message"]) == (400, "These routes do not read the storage home.")

    credentials_file(tmp_path / "s3.yaml", access_key_id=ACCESS_KEY, secret_access_key="wrong")
    refused = entries(cluster, "sets", "/")
    assert refused.status == 503 and refused.json()["message"].startswith("The storage sets cannot be read")
    assert "wrong" not in refused.text


def change(cluster: TeamCluster, method: str, what: str, body: bytes | None = None, **query: str) -> Reply:
    """Send a change of the storage; ``what`` is STORAGE/ROUTE."""
    values = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    return cluster.ask(method, f"/api/v2/storages/{what}?{values}", body)


def send_and_break_off(cluster: TeamCluster, path: str, body: bytes, length: int) -> None:
    """Send the beginning of a body, and close the connection."""
    connection = cluster.connect()
    connection.putrequest("PUT", path)
    connection.putheader("Authorization", f"Bearer {cluster.token}")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    connection.send(body)
    connection.close()


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("cloud")
def test_users_change_storages_in_clouds(
    new_team: NewTeam, tmp_path: Path, s3_server: CloudServer, azure_server: CloudServer
) -> None:
    prefix = f"change-{os.getpid()}"
    bucket = with_keys(tmp_path, bucket_settings(s3_server, prefix))
    cluster = new_team(
        "storages:\n"
        "  - {name: home, type: own}\n"
        f"  - {{name: sets, {bucket}}}\n"
        f"  - {{name: blobs, {container_settings(tmp_path, azure_server, prefix)}}}\n"
        f"  - {{name: fixed, {bucket}, read-only: true}}\n"
        f"  - {{name: closed, {bucket}, groups: [others]}}\n"
    )
    parts = LARGE * 4  # three parts
    for storage in ("sets", "blobs"):
        made = change(cluster, "PUT", f"{storage}/entries", path="/new")
        assert made.status == 201, made.text
        assert names(entries(cluster, storage, "/")) == [("new", "directory", 0)]
        assert names(entries(cluster, storage, "/new")) == []
        put = change(cluster, "PUT", f"{storage}/content", b"hello", path="/new/a b.txt")
        assert (put.status, put.json()) == (201, {"size": 5})
        assert change(cluster, "PUT", f"{storage}/content", b"", path="/new/empty").status == 201
        again = change(cluster, "PUT", f"{storage}/content", b"other", path="/new/a b.txt")
        assert (again.status, again.json()["message"]) == (409, "/new/a b.txt already exists.")
        assert (
            change(cluster, "PUT", f"{storage}/content", b"other", path="/new", overwrite="true").status
            == 409
        )
        below = change(cluster, "PUT", f"{storage}/content", b"x", path="/new/a b.txt/x")
        assert (below.status, below.json()["message"]) == (409, "/new/a b.txt is a file and not a folder.")

        # An upload in parts, which is interrupted and goes on.
        upload = {"path": "/new/large", "upload": "key", "size": str(len(parts))}
        assert change(cluster, "POST", f"{storage}/uploads", **upload).json() == {"offset": 0}
        address = f"/api/v2/storages/{storage}/content?path=/new/large&upload=key"
        send_and_break_off(cluster, address, parts[: 9 << 20], len(parts))
        offset = eventually(
            # Refused while the server holds the request that was broken off.
            lambda: change(cluster, "POST", f"{storage}/uploads", **upload).json().get("offset"),  # noqa: B023
            "the first part",
        )
        assert offset == 8 << 20
        rest = cluster.ask("PUT", f"{address}&offset={offset}", parts[offset:])
        assert (rest.status, rest.json()) == (201, {"size": len(parts)})
        assert cluster.get(f"/api/v2/storages/{storage}/content?path=/new/large").body == parts

        moved = change(cluster, "POST", f"{storage}/moves", path="/new/large", target="/new/moved/big")
        assert (moved.status, moved.json()) == (200, {"moved": 1, "isComplete": True})
        for target, status in (("/new/a b.txt", 409), ("/new/empty/x", 409), ("/new/moved/x", 400)):
            assert (
                change(cluster, "POST", f"{storage}/moves", path="/new/moved", target=target).status == status
            )
        assert change(cluster, "POST", f"{storage}/moves", path="/new", target="/gone").json()["isComplete"]
        assert change(cluster, "POST", f"{storage}/moves", path="/new", target="/x").status == 404
        assert names(entries(cluster, storage, "/")) == [("gone", "directory", 0)]
        deleted = change(cluster, "DELETE", f"{storage}/entries", path="/gone/moved/big")
        assert deleted.json() == {"deleted": 1, "isComplete": True}
        assert names(entries(cluster, storage, "/gone/moved")) == []
        assert change(cluster, "DELETE", f"{storage}/entries", path="/gone").json()["isComplete"]
        assert names(entries(cluster, storage, "/")) == []
        assert change(cluster, "DELETE", f"{storage}/entries", path="/gone").status == 404
        for path in ("/", "/../x"):
            assert change(cluster, "DELETE", f"{storage}/entries", path=path).status == 400
        assert change(cluster, "DELETE", f"{storage}/uploads", **upload).status == 200
    connection = cluster.connect()
    address = "/api/v2/storages/sets/content?path=/chunked"
    connection.request("PUT", address, iter([b"x"]), {"Authorization": f"Bearer {cluster.token}"})
    assert connection.getresponse().status == 411
    connection.close()
    refused = change(cluster, "PUT", "fixed/content", b"x", path="/x")
    assert (refused.status, refused.json()["message"]) == (403, "The storage fixed is read-only.")
    assert change(cluster, "DELETE", "closed/entries", path="/x").status == 403
