"""Legacy storage configs and servers that administrators store for clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.server_fixture import Reply, job
from support.team_cluster import TeamCluster

CONFIG, SERVER = "/api/v2/storage/config", "/api/v2/storage/server"
PASSWORD_OF_SERVER = "planted-in-a-server"
NAS: dict[str, Any] = {
    "spn": "nas",
    "type": "samba",
    "data": {"address": "10.0.0.5", "rootPath": "/share", "userName": "u", "password": PASSWORD_OF_SERVER},
    "extension": {"note": 1},
}
TEAM: dict[str, Any] = {
    "name": "TEAM",
    "default": True,
    "servers": ["nas"],
    "mountInfos": [{"mountPoint": "/data", "path": "${PAI_USER_NAME}", "server": "nas", "permission": "ro"}],
    "gpn": "nas_users",
}


@pytest.fixture
def stored(cluster: TeamCluster) -> Iterator[TeamCluster]:
    assert admin(cluster, "POST", SERVER, NAS).status == 201
    assert admin(cluster, "POST", CONFIG, TEAM).status == 201
    yield cluster
    admin(cluster, "DELETE", f"{CONFIG}/TEAM")
    admin(cluster, "DELETE", f"{SERVER}/nas")


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


def status_and_message(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json()["message"]


def test_stored_records_are_read_changed_and_deleted(cluster: TeamCluster) -> None:
    for where, kind, body, key in ((SERVER, "Server", NAS, "spn"), (CONFIG, "Config", TEAM, "name")):
        assert status_and_message(admin(cluster, "POST", where, body)) == (
            201,
            f"Storage {kind} is created successfully",
        )
        assert admin(cluster, "GET", f"{where}/{body[key]}").json() == body
        assert body in admin(cluster, "GET", where).json()
        assert admin(cluster, "GET", f"{where}?names={body[key]}").json() == [body]
        assert admin(cluster, "POST", f"{where}s", {"names": [body[key]]}).json() == [body]
        again = admin(cluster, "POST", where, body)
        assert (again.status, again.json()["code"]) == (409, "ConflictStorageError")
    changed = {**NAS, "data": {"address": "10.0.0.6", "rootPath": "/"}}
    assert status_and_message(admin(cluster, "PUT", SERVER, changed)) == (
        201,
        "Storage Server is updated successfully",
    )
    assert admin(cluster, "GET", f"{SERVER}/nas").json() == changed
    open_to_all = {"name": "TEAM", "servers": ["nas"]}
    assert (
        status_and_message(admin(cluster, "PUT", CONFIG, open_to_all))[1]
        == "Storage Config is updated successfully"
    )
    assert admin(cluster, "GET", f"{CONFIG}/TEAM").json() == {
        **open_to_all,
        "default": False,
        "mountInfos": [],
    }
    gone = admin(cluster, "DELETE", CONFIG, {"name": "TEAM"})
    assert status_and_message(gone) == (201, "Storage Config is deleted successfully")
    assert (
        status_and_message(admin(cluster, "DELETE", f"{SERVER}/nas"))[1]
        == "Storage Server is deleted successfully"
    )
    assert admin(cluster, "GET", f"{CONFIG}/TEAM").status == 404
    for method, where, body in (
        ("DELETE", f"{CONFIG}/TEAM", None),
        ("DELETE", SERVER, {"spn": "nas"}),
        ("PUT", CONFIG, TEAM),
        ("PUT", SERVER, NAS),
    ):
        missing = admin(cluster, method, where, body)
        assert (missing.status, missing.json()["code"]) == (404, "NoStorageError")


def test_only_administrators_with_user_tokens_write(cluster: TeamCluster) -> None:
    application = admin(cluster, "POST", "/api/v2/tokens/application").json()["token"]
    for method in ("POST", "PUT", "DELETE"):
        for where, body in ((CONFIG, TEAM), (SERVER, NAS)):
            refused = cluster.ask(method, where, body)
            assert status_and_message(refused) == (403, "Non-admin is not allow to do this operation.")
            assert cluster.ask(method, where, body, token=None).status == 401
            assert cluster.ask(method, where, body, token=application).status == 403


def test_record_is_visible_to_its_group_only(stored: TeamCluster) -> None:
    def seen(where: str, key: str) -> list[str]:
        return [one[key] for one in stored.get(where).json() if one[key] in ("TEAM", "nas")]

    assert seen(CONFIG, "name") == seen(SERVER, "spn") == []
    assert stored.get(f"{SERVER}/nas").status == 404
    assert "TEAM" not in stored.get("/api/v2/users/alice").json()["storageConfig"]
    admin(stored, "POST", "/api/v2/groups", {"groupname": "nas_users"})
    try:
        admin(stored, "PUT", "/api/v2/users/alice/group", {"groupname": "nas_users"})
        assert (seen(CONFIG, "name"), seen(SERVER, "spn")) == (["TEAM"], ["nas"])
        assert stored.get(f"{SERVER}/nas").json() == NAS
        assert "TEAM" in stored.get("/api/v2/users/alice").json()["storageConfig"]
        listed = {user["username"]: user["storageConfig"] for user in stored.get("/api/v2/users").json()}
        assert ("TEAM" in listed["alice"], "TEAM" in listed["bob"]) == (True, False)
    finally:
        admin(stored, "DELETE", "/api/v2/groups/nas_users")


def test_jobs_cannot_use_records_and_contents_are_sealed(stored: TeamCluster, name: str) -> None:
    refused = stored.submit(job(name, "true", extras={"storages": [{"name": "TEAM"}]}))
    assert (refused.status, refused.json()["code"]) == (404, "NoStorageError")
    assert "Storages of this cluster:" in refused.json()["hint"]
    for file in stored.home.glob("cluster.db*"):
        assert PASSWORD_OF_SERVER.encode() not in file.read_bytes()
    assert PASSWORD_OF_SERVER not in (stored.home / "audit.log").read_text()


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        (CONFIG, {"name": "a-b"}, '"name" with value "a-b" fails to match'),
        (CONFIG, {"mountInfos": [{"mountPoint": "/x"}]}, '"mountInfos[0].server" is required'),
        (CONFIG, {"mountInfos": ["x"]}, '"mountInfos[0]" must be an object'),
        (CONFIG, {"mountInfos": {}}, '"mountInfos" must be an array'),
        (CONFIG, {"other": 1}, '"other" is not allowed'),
        (SERVER, {"type": "ftp"}, '"type" must be one of [nfs, samba, azurefile, azureblob, hdfs]'),
        (SERVER, {"data": "x"}, '"data" must be an object'),
    ],
)
def test_invalid_record_is_rejected(
    cluster: TeamCluster, where: str, change: dict[str, Any], message: str
) -> None:
    refused = admin(cluster, "POST", where, {**(TEAM if where == CONFIG else NAS), **change})
    assert (refused.status, refused.json()["code"]) == (400, "InvalidParametersError")
    assert refused.json()["message"].startswith(message)


def test_name_of_the_files_of_jobs_is_refused(cluster: TeamCluster) -> None:
    refused = admin(cluster, "POST", CONFIG, {**TEAM, "name": "jobs"})
    assert (refused.status, refused.json()["code"]) == (403, "ForbiddenKeyError")
    assert "files of jobs" in refused.json()["message"]


def test_reserved_and_configured_names_are_read_only(cluster: TeamCluster) -> None:
    for where, body in ((CONFIG, {**TEAM, "name": "empty"}), (SERVER, {**NAS, "spn": "empty"})):
        for method in ("POST", "PUT", "DELETE"):
            refused = admin(cluster, method, where, body)
            assert (refused.status, refused.json()["code"]) == (403, "ForbiddenKeyError")
    own = cluster.get("/api/v2/storages").json()["storages"][0]["name"]
    assert admin(cluster, "POST", CONFIG, {**TEAM, "name": own}).json()["code"] == "ConflictStorageError"
    assert admin(cluster, "DELETE", f"{CONFIG}/{own}").json()["code"] == "ForbiddenUserError"
