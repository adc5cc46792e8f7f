"""Job templates over real HTTP: secrets, groups, permissions, bounds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from paicluster.api.v2.job_templates import MAX_BYTES
from paicluster.store.job_templates import MAX_PER_USER
from support.server_fixture import Reply, job
from support.team_cluster import TeamCluster

TEMPLATES = "/api/v2/job-templates"
SECRET = "hunter-two-of-alice"
_numbers = itertools.count()


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


def put(cluster: TeamCluster, name: str, user: str = "alice", owner: str = "alice", **more: Any) -> Reply:
    body = {"protocol": json.dumps(job(name, "echo hello")), **more}
    return cluster.ask("PUT", f"{TEMPLATES}/{owner}/{name}", body, token=cluster.tokens[user])


def get(cluster: TeamCluster, path: str, user: str) -> Reply:
    return cluster.get(f"{TEMPLATES}{path}", token=cluster.tokens[user])


def listed(cluster: TeamCluster, user: str) -> list[str]:
    return [f"{one['username']}/{one['name']}" for one in get(cluster, "", user).json()]


@pytest.fixture
def group(cluster: TeamCluster) -> Iterator[str]:
    name = f"templates_{next(_numbers)}"
    assert admin(cluster, "POST", "/api/v2/groups", {"groupname": name, "description": ""}).status == 201
    assert admin(cluster, "PUT", "/api/v2/users/alice/group", {"groupname": name}).status == 201
    yield name
    admin(cluster, "DELETE", "/api/v2/users/alice/group", {"groupname": name})


def test_template_of_a_user_is_listed_replaced_and_deleted(cluster: TeamCluster) -> None:
    assert put(cluster, "own", description="first").status == 200
    reply = put(cluster, "own", description="second")
    summary = reply.json()
    assert (summary["description"], summary["group"], summary["mayChange"]) == ("second", None, True)
    assert "alice/own" in listed(cluster, "alice")
    found = get(cluster, "/alice/own", "alice").json()
    assert json.loads(found.pop("protocol"))["name"] == "own"
    assert found == summary
    assert cluster.ask("DELETE", f"{TEMPLATES}/alice/own").json()["message"] == "Job template own is deleted."
    assert "alice/own" not in listed(cluster, "alice")
    gone = cluster.ask("DELETE", f"{TEMPLATES}/alice/own")
    assert (gone.status, gone.json()["code"]) == (404, "NoTemplateError")


@pytest.mark.parametrize("is_yaml", [True, False])
def test_secrets_are_not_stored(cluster: TeamCluster, is_yaml: bool) -> None:
    spec = job("with-secret", "echo <% $secrets.key %>") | {"secrets": {"key": SECRET}}
    text = json.dumps(spec)
    if is_yaml:
        lines = (f"{key}: {json.dumps(value)}" for key, value in spec.items())
        text = "\n".join(["# kept", *lines, ""])
    assert put(cluster, "with-secret", protocol=text).status == 200
    reply = get(cluster, "/alice/with-secret", "alice")
    assert SECRET not in reply.text and "******" in reply.text
    assert ("# kept" in reply.text) is is_yaml
    for file in cluster.home.glob("cluster.db*"):
        assert SECRET.encode() not in file.read_bytes()
    # What was read may be sent again, with another description.
    again = put(cluster, "with-secret", protocol=reply.json()["protocol"], description="new")
    assert again.json()["description"] == "new", again.text
    assert get(cluster, "/alice/with-secret", "alice").json()["protocol"] == reply.json()["protocol"]


def test_another_user_neither_sees_nor_changes_it(cluster: TeamCluster) -> None:
    assert put(cluster, "private").status == 200
    assert "alice/private" not in listed(cluster, "bob")
    hidden = get(cluster, "/alice/private", "bob")
    # The same as for one that does not exist.
    assert (hidden.status, hidden.json()["code"]) == (404, "NoTemplateError")
    assert hidden.json() == {
        **get(cluster, "/alice/nothing", "bob").json(),
        "message": "User alice has no job template private.",
    }
    for method, body in (("PUT", {"protocol": "{}"}), ("DELETE", None)):
        refused = cluster.ask(method, f"{TEMPLATES}/alice/private", body, token=cluster.tokens["bob"])
        assert refused.status == 403
        assert "Only alice and administrators" in refused.json()["hint"]


def test_members_of_its_group_use_it_until_they_are_removed(cluster: TeamCluster, group: str) -> None:
    assert put(cluster, "shared", group=group).status == 200
    assert get(cluster, "/alice/shared", "bob").status == 404
    admin(cluster, "PUT", "/api/v2/users/bob/group", {"groupname": group})
    assert "alice/shared" in listed(cluster, "bob")
    found = get(cluster, "/alice/shared", "bob").json()
    assert (found["group"], found["mayChange"]) == (group, False)
    assert put(cluster, "shared", user="bob").status == 403
    admin(cluster, "DELETE", "/api/v2/users/bob/group", {"groupname": group})
    assert "alice/shared" not in listed(cluster, "bob")
    assert get(cluster, "/alice/shared", "bob").status == 404
    # Its owner has it also after leaving the group, but for themselves only.
    admin(cluster, "DELETE", "/api/v2/users/alice/group", {"groupname": group})
    assert "alice/shared" in listed(cluster, "alice")
    refused = put(cluster, "shared", group=group)
    assert (refused.status, refused.json()["message"]) == (
        403,
        f"User alice does not belong to the group {group}.",
    )
    assert put(cluster, "shared").json()["group"] is None


def test_template_of_a_deleted_group_is_its_owners(cluster: TeamCluster, group: str) -> None:
    assert put(cluster, "orphan", group=group).status == 200
    assert admin(cluster, "DELETE", f"/api/v2/groups/{group}").status == 200
    assert get(cluster, "/alice/orphan", "alice").json()["group"] is None
    assert put(cluster, "orphan", group="no_such_group").status == 403
    unknown = put(cluster, "orphan", user="admin", group="no_such_group")
    assert (unknown.status, unknown.json()["code"]) == (404, "NoGroupError")


def test_administrators_change_and_delete_those_of_others(cluster: TeamCluster, group: str) -> None:
    assert put(cluster, "kept", group=group).status == 200
    assert "alice/kept" in listed(cluster, "admin")
    assert put(cluster, "kept", user="admin", group=group, description="reviewed").status == 200
    assert get(cluster, "/alice/kept", "alice").json()["description"] == "reviewed"
    # They make none in the name of another user.
    assert put(cluster, "new", user="admin").status == 404
    assert admin(cluster, "DELETE", f"{TEMPLATES}/alice/kept").status == 200
    assert get(cluster, "/alice/kept", "alice").status == 404


def test_disabled_user_has_no_access_and_the_group_keeps_the_template(
    cluster: TeamCluster, group: str
) -> None:
    admin(cluster, "PUT", "/api/v2/users/bob/group", {"groupname": group})
    assert put(cluster, "of-bob", user="bob", owner="bob", group=group).status == 200
    assert admin(cluster, "PUT", "/api/v2/users/bob/disabled", {"disabled": True}).status < 300
    try:
        assert get(cluster, "", "bob").status == 401
        assert put(cluster, "of-bob", user="bob", owner="bob").status == 401
        assert get(cluster, "/bob/of-bob", "alice").status == 200
    finally:
        admin(cluster, "PUT", "/api/v2/users/bob/disabled", {"disabled": False})
        cluster.tokens["bob"] = cluster.log_in("bob")


@pytest.mark.parametrize(
    ("name", "more", "status", "message"),
    [
        ("wrong", {"protocol": "name: x"}, 400, "protocolVersion"),
        ("a b", {}, 400, "is no name of a job template"),
        ("long", {"description": "x" * 1001}, 400, "description"),
        ("large", {"protocol": "#" * (MAX_BYTES + 1)}, 413, f"may have {MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_template_is_refused(
    cluster: TeamCluster, name: str, more: dict[str, Any], status: int, message: str
) -> None:
    body = {"protocol": json.dumps(job("a", "true")), **more}
    reply = cluster.ask("PUT", f"{TEMPLATES}/alice/{name.replace(' ', '%20')}", body)
    assert reply.status == status and message in reply.text, reply.text
    assert not [one for one in listed(cluster, "alice") if one.endswith(f"/{name}")]


def test_own_templates_come_first_by_name(cluster: TeamCluster, group: str) -> None:
    admin(cluster, "PUT", "/api/v2/users/bob/group", {"groupname": group})
    for name, shared in (("c-own", None), ("a-own", group), ("b-own", None)):
        assert put(cluster, name, group=shared).status == 200
    for name in ("z-others", "a-others"):
        assert put(cluster, name, user="bob", owner="bob", group=group).status == 200
    names = [one for one in listed(cluster, "alice") if one.endswith(("-own", "-others"))]
    assert names == ["alice/a-own", "alice/b-own", "alice/c-own", "bob/a-others", "bob/z-others"]


def test_number_of_a_users_templates_is_bounded(cluster: TeamCluster) -> None:
    have = sum(one.startswith("bob/") for one in listed(cluster, "bob"))
    names = [f"t{number}" for number in range(have, MAX_PER_USER)]
    assert {put(cluster, name, user="bob", owner="bob").status for name in names} == {200}
    refused = put(cluster, "one-more", user="bob", owner="bob")
    assert (refused.status, refused.json()["code"]) == (403, "TooManyTemplatesError")
    assert put(cluster, names[0], user="bob", owner="bob", description="replaced").status == 200
    for name in names:
        cluster.ask("DELETE", f"{TEMPLATES}/bob/{name}", token=cluster.tokens["bob"])
