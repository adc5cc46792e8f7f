"""Groups over real HTTP, and the permissions of their members."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.server_fixture import Reply
from support.team_cluster import TeamCluster

GROUP = {"groupname", "description", "externalName", "extension"}
_numbers = itertools.count()


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


@pytest.fixture
def group(cluster: TeamCluster) -> str:
    name = f"team_{next(_numbers)}"
    created = admin(cluster, "POST", "/api/v2/groups", {"groupname": name, "description": "ours"})
    assert (created.status, created.json()) == (201, {"message": "group is created successfully"})
    return name


@pytest.mark.parametrize("where", ["/api/v2/groups", "/api/v2/group", "/rest-server/api/v2/groups"])
def test_any_user_may_list_groups(cluster: TeamCluster, group: str, where: str) -> None:
    listed = {one["groupname"]: one for one in cluster.get(where).json()}
    assert {"default", "admingroup", group} <= set(listed)
    assert all(set(one) == GROUP for one in listed.values())
    acls = {"admin": False, "virtualClusters": [], "storageConfigs": []}
    expected = {"groupname": group, "description": "ours", "externalName": "", "extension": {"acls": acls}}
    assert listed[group] == expected
    assert cluster.get(f"{where}/{group}").json() == expected
    assert listed["admingroup"]["extension"]["acls"]["admin"] is True
    assert listed["default"]["extension"]["acls"]["virtualClusters"] == ["default"]
    page = cluster.get(f"{where}?offset=1&limit=1").json()
    assert [one["groupname"] for one in page] == [sorted(listed)[1]]
    unknown = cluster.get(f"{where}/nogroup")
    assert (unknown.status, unknown.json()["code"]) == (400, "NoGroupError")
    assert unknown.json()["message"] == "Group nogroup is not found."
    assert cluster.get(where, token=None).status == 401


def test_administrators_list_the_members_of_a_group(cluster: TeamCluster, group: str) -> None:
    admin(cluster, "PUT", "/api/v2/users/alice/group", {"groupname": group})
    admin(cluster, "PUT", "/api/v2/users/admin/group", {"groupname": group})
    listed = admin(cluster, "GET", f"/api/v2/groups/{group}/userlist")
    assert listed.json() == [
        {"username": "admin", "clusterAdmin": True},
        {"username": "alice", "clusterAdmin": False},
    ]
    assert admin(cluster, "GET", f"/api/v2/groups/{group}/userlist?limit=1&offset=1").json() == [
        {"username": "alice", "clusterAdmin": False}
    ]
    assert admin(cluster, "GET", "/api/v2/groups/nogroup/userlist").json() == []
    assert cluster.get(f"/api/v2/groups/{group}/userlist").status == 403
    gone = admin(cluster, "DELETE", f"/api/v2/groups/{group}")
    assert (gone.status, gone.json()) == (200, {"message": "group is removed successfully"})
    assert cluster.get("/api/v2/users/alice").json()["grouplist"] == ["default"]
    again = admin(cluster, "DELETE", f"/api/v2/groups/{group}")
    assert (again.status, again.json()["code"]) == (400, "NoGroupError")


def test_group_is_updated_whole_or_in_part(cluster: TeamCluster, group: str) -> None:
    def change(patch: bool, **data: Any) -> Reply:
        return admin(cluster, "PUT", "/api/v2/groups", {"patch": patch, "data": {"groupname": group, **data}})

    assert change(False, description="x").status == 400
    whole = change(False, description="d", externalName="e", extension={"a": 1})
    assert (whole.status, whole.json()) == (201, {"message": f"update group {group} successfully."})
    assert change(True, extension={"b": 2}).status == 201
    now = cluster.get(f"/api/v2/groups/{group}").json()
    assert (now["description"], now["externalName"]) == ("d", "e")
    assert (now["extension"]["a"], now["extension"]["b"]) == (1, 2)
    unknown = admin(cluster, "PUT", "/api/v2/groups", {"patch": True, "data": {"groupname": "nogroup"}})
    assert (unknown.status, unknown.json()["code"]) == (400, "NoGroupError")


def test_legacy_routes_change_single_properties(cluster: TeamCluster, group: str) -> None:
    where = f"/api/v2/group/{group}"
    for path, body, message in (
        ("extension", {"extension": {"k": 1}}, "update group extension data successfully."),
        ("extension/k/deep", {"data": [1]}, "Update group extension data successfully."),
        ("description", {"description": "other"}, "update group description data successfully."),
        ("externalname", {"externalName": "ext"}, "update group externalNameData data successfully."),
        ("extension/acls/virtualClusters", {"data": ["lab"]}, "Update group extension data successfully."),
    ):
        done = admin(cluster, "PUT", f"{where}/{path}", body)
        assert (done.status, done.json()) == (201, {"message": message}), path
        assert cluster.ask("PUT", f"{where}/{path}", body).status == 403
        assert admin(cluster, "PUT", f"/api/v2/group/nogroup/{path}", body).json()["code"] == "NoGroupError"
    now = cluster.get(where).json()
    assert (now["description"], now["externalName"]) == ("other", "ext")
    assert now["extension"]["k"] == {"deep": [1]}
    assert now["extension"]["acls"] == {"admin": False, "virtualClusters": ["lab"], "storageConfigs": []}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, '"groupname" is required'),
        ({"groupname": "a-b"}, "fails to match"),
        ({"groupname": ""}, "is not allowed to be empty"),
        ({"groupname": "x", "extension": 1}, '"extension" must be an object'),
        ({"groupname": "x", "extension": {"acls": 1}}, '"extension.acls" must be an object'),
        ({"groupname": "x", "extension": {"acls": {"admin": "yes"}}}, "acls.admin"),
        ({"groupname": "x", "extension": {"acls": {"virtualClusters": "all"}}}, "acls.virtualClusters"),
        ({"groupname": "x", "extension": {"acls": {"storageConfigs": [1]}}}, "acls.storageConfigs"),
        ({"groupname": "x", "admin": True}, '"admin" is not allowed'),
    ],
)
def test_invalid_group_is_rejected_with_a_message(
    cluster: TeamCluster, body: dict[str, Any], message: str
) -> None:
    reply = admin(cluster, "POST", "/api/v2/groups", body)
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")
    assert message in reply.json()["message"], reply.json()


def test_only_administrators_change_groups_and_names_are_unique(cluster: TeamCluster, group: str) -> None:
    for method, path, body in (
        ("POST", "/api/v2/groups", {"groupname": "evil"}),
        ("PUT", "/api/v2/groups", {"patch": True, "data": {"groupname": group}}),
        ("DELETE", f"/api/v2/groups/{group}", None),
    ):
        assert cluster.ask(method, path, body).status == 403
        assert cluster.ask(method, path, body, token=None).status == 401
    again = admin(cluster, "POST", "/api/v2/groups", {"groupname": group})
    assert (again.status, again.json()["code"]) == (409, "ConflictGroupError")
    for needed in ("default", "admingroup"):
        assert admin(cluster, "DELETE", f"/api/v2/groups/{needed}").status == 403


def test_group_with_admin_acl_makes_its_members_administrators(cluster: TeamCluster, group: str) -> None:
    token = cluster.log_in("bob")
    admin(cluster, "PUT", "/api/v2/users/bob/group", {"groupname": group})
    assert cluster.get("/api/v2/kubernetes/nodes", token=token).status == 403
    admin(cluster, "PUT", f"/api/v2/groups/{group}/extension/acls/admin", {"data": True})
    assert cluster.get("/api/v2/kubernetes/nodes", token=token).status == 200, (
        "immediately, with the same token"
    )
    assert admin(cluster, "DELETE", f"/api/v2/groups/{group}").status == 200
    assert cluster.get("/api/v2/kubernetes/nodes", token=token).status == 403
