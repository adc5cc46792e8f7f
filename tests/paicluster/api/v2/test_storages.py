"""Storages through the current and the legacy routes."""

from __future__ import annotations

import pytest

from support.server_fixture import job
from support.team_cluster import PASSWORD, TeamCluster

SUMMARY = {"name", "share", "volumeName", "default"}
FILE = """
home: .
listen: {port: 0}
allow-shared-account: true
storages:
  - {name: own, type: own, path: storage, share: false}
  - {name: data, type: mount, path: /, read-only: true}
  - {name: secret, type: hdfs, url: "http://namenode:9870", groups: [blue]}
"""


@pytest.fixture(scope="module")
def configured_cluster(tmp_path_factory: pytest.TempPathFactory) -> TeamCluster:
    home = tmp_path_factory.mktemp("storages") / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text(FILE)
    return TeamCluster(
        home, ("--config", str(home / "cluster.yaml")), {"PAICLUSTER_ADMIN_PASSWORD": PASSWORD}
    )


def test_default_storage_is_the_clusters_own(cluster: TeamCluster) -> None:
    found = cluster.get("/api/v2/storages").json()
    assert set(found) == {"storages"} and all(set(one) == SUMMARY for one in found["storages"])
    own = found["storages"][0]
    assert own["default"] is True
    detail = cluster.get(f"/api/v2/storages/{own['name']}").json()
    assert detail["type"] == "other" and detail["data"]["url"].endswith("/webhdfs")
    assert cluster.get("/api/v2/storages?default=true").json() == found
    assert cluster.get("/api/v2/users/alice").json()["storageConfig"] == [own["name"]]
    unknown = cluster.get("/api/v2/storages/none")
    assert (unknown.status, unknown.json()["code"]) == (404, "NoStorageError")
    assert cluster.get("/api/v2/storages", token=None).status == 401


def test_legacy_routes_show_the_same_storages(cluster: TeamCluster) -> None:
    name = cluster.get("/api/v2/storages").json()["storages"][0]["name"]
    host, port = cluster.address
    config = cluster.get(f"/api/v2/storage/config/{name}").json()
    assert config["servers"] == [name] and config["default"] is True
    assert config["mountInfos"][0] == {
        "mountPoint": f"/mnt/{name}",
        "path": "",
        "server": name,
        "permission": "rw",
    }
    server = cluster.get(f"/api/v2/storage/server/{name}").json()
    assert (server["spn"], server["type"]) == (name, "hdfs")
    assert (server["data"]["namenode"], server["data"]["port"]) == (host, port)
    for kind, one in (("config", config), ("server", server)):
        assert cluster.get(f"/api/v2/storage/{kind}").json() == [one]
        assert cluster.get(f"/api/v2/storage/{kind}?names={name}&names=other").json() == [one]
        assert cluster.get(f"/api/v2/storage/{kind}?names=other").json() == []
        assert cluster.ask("POST", f"/api/v2/storage/{kind}s", {"names": [name]}).json() == [one]
        assert cluster.ask("POST", f"/api/v2/storage/{kind}s", {}).json() == [one]
        unknown = cluster.get(f"/api/v2/storage/{kind}/none")
        assert (unknown.status, unknown.json()["message"]) == (404, f"{kind.capitalize()} not found.")
        assert cluster.get(f"/api/v2/storage/{kind}", token=None).status == 401


def test_job_may_only_name_existing_storages(cluster: TeamCluster, name: str) -> None:
    own = cluster.get("/api/v2/storages").json()["storages"][0]["name"]
    plugin = {"plugin": "teamwise_storage", "parameters": {"storageConfigNames": ["none"]}}
    for extras in ({"storages": [{"name": "none"}]}, {"com.microsoft.pai.runtimeplugin": [plugin]}):
        refused = cluster.submit(job(name, "true", extras=extras))
        assert (refused.status, refused.json()["code"]) == (404, "NoStorageError"), refused.text
        assert refused.json()["message"] == "Storage none is not found."
    assert cluster.submit(job(name, "true", extras={"storages": [{"name": own}]})).status == 202


def test_configured_storages_are_limited_to_their_groups(configured_cluster: TeamCluster) -> None:
    cluster = configured_cluster
    try:
        cluster.start()
        cluster.token = cluster.tokens["admin"] = cluster.log_in("admin")
        made = {"username": "alice", "password": PASSWORD}
        assert cluster.ask("POST", "/api/v2/users", made).status == 201
        alice = cluster.log_in("alice")

        def names(token: str, query: str = "") -> list[str]:
            found = cluster.get(f"/api/v2/storages{query}", token=token).json()
            return [one["name"] for one in found["storages"]]

        assert names(cluster.token) == ["own", "data", "secret"], "an administrator may use all"
        assert names(alice) == ["own", "data"] and names(alice, "?default=true") == ["own"]
        refused = cluster.get("/api/v2/storages/secret", token=alice)
        assert (refused.status, refused.json()["message"]) == (
            403,
            "User alice is not allowed to access secret.",
        )
        acls = {"acls": {"storageConfigs": ["secret"]}}
        for group, extension in (("blue", {}), ("red", acls)):
            body = {"groupname": group, "extension": extension}
            assert cluster.ask("POST", "/api/v2/groups", body).status == 201
            put = cluster.ask("PUT", "/api/v2/users/alice/group", {"groupname": group})
            assert put.status == 201
            assert names(alice) == ["own", "data", "secret"]
            cluster.ask("DELETE", "/api/v2/users/alice/group", {"groupname": group})
            assert names(alice) == ["own", "data"]
        theirs = job("mine", "true", extras={"storages": [{"name": "secret"}]})
        assert cluster.submit(theirs, token=alice).json()["code"] == "ForbiddenUserError"
        data = cluster.get("/api/v2/storages/data", token=alice).json()
        assert (data["type"], data["readOnly"], data["data"]["path"]) == ("nfs", True, "/")
        own = cluster.get("/api/v2/storage/config/own", token=alice).json()
        assert own["mountInfos"][0]["path"] == "${PAI_USER_NAME}"
    finally:
        cluster.close()
