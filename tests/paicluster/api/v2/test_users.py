"""Users over real HTTP: list, create, change, delete, under both of their paths."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from support.server_fixture import Reply, eventually, job
from support.team_cluster import PASSWORD, TeamCluster
from support.web_socket import Refused, WebSocket

USER_INFO = {
    *("username", "grouplist", "email", "extension", "admin", "disabled"),
    *("virtualCluster", "storageConfig"),
}
NOT_ADMIN = "Non-admin is not allow to do this operation."
_numbers = itertools.count()


def admin(cluster: TeamCluster, method: str, path: str, body: Any = None) -> Reply:
    return cluster.ask(method, path, body, token=cluster.tokens["admin"])


@pytest.fixture
def new_user(cluster: TeamCluster) -> str:
    """A user created for one test."""
    name = f"some.one-{next(_numbers)}"
    made = admin(cluster, "POST", "/api/v2/users", {"username": name, "password": PASSWORD})
    assert (made.status, made.json()) == (201, {"message": "User is created successfully"})
    return name


def info(cluster: TeamCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = admin(cluster, "GET", f"/api/v2/users/{name}").json()
    return found


@pytest.mark.parametrize("where", ["/api/v2/users", "/api/v2/user", "/rest-server/api/v2/users"])
def test_any_user_may_list_users_but_not_see_their_extensions(
    cluster: TeamCluster, new_user: str, where: str
) -> None:
    listed = {one["username"]: one for one in cluster.get(where).json()}
    assert {"admin", "alice", "bob", new_user} <= set(listed)
    for one in listed.values():
        assert set(one) == USER_INFO
    assert listed["admin"]["admin"] is True and "admingroup" in listed["admin"]["grouplist"]
    assert listed["alice"]["grouplist"] == ["default"] and listed["alice"]["virtualCluster"] == ["default"]
    assert listed[new_user]["extension"] == {}
    page = cluster.get(f"{where}?offset=1&limit=2").json()
    assert [one["username"] for one in page] == sorted(listed)[1:3]
    assert cluster.get(f"{where}/alice").json() == listed["alice"]
    assert cluster.get(f"{where}/me").json()["username"] == "alice"
    unknown = cluster.get(f"{where}/nobody")
    assert (unknown.status, unknown.json()["code"]) == (400, "NoUserError")
    assert unknown.json()["message"] == "User nobody is not found."


def test_trailing_slash_is_ignored(cluster: TeamCluster) -> None:
    plain = replace(cluster, description=None)
    assert plain.get("/api/v2/user/").json() == cluster.get("/api/v2/user").json()
    assert plain.get("/rest-server/api/v2/users/alice/").status == 200


def test_version_1_shows_a_user(cluster: TeamCluster) -> None:
    found = cluster.get("/api/v1/user/alice")
    assert found.status == 200 and set(found.json()) == USER_INFO
    assert cluster.get("/api/v1/user/nobody").json()["code"] == "NoUserError"
    assert cluster.get("/api/v1/user/alice", token=None).status == 401


def test_new_user_logs_in_and_only_that_user_sees_the_key_pair(cluster: TeamCluster) -> None:
    name = f"made-{next(_numbers)}"
    body = {
        "username": name,
        "password": PASSWORD,
        "email": "made@example.org",
        "virtualCluster": ["default"],
        "extension": {"team": "blue", "githubPAT": "ghp_planted"},
    }
    assert admin(cluster, "POST", "/api/v2/user", body).status == 201
    credentials = {"username": name, "password": PASSWORD}
    login = cluster.ask("POST", "/api/v2/authn/basic/login", credentials, token=None).json()
    assert login["hasGitHubPAT"] is True
    token = login["token"]
    own = cluster.get(f"/api/v2/users/{name}", token=token).json()
    assert own["email"] == "made@example.org" and own["admin"] is False
    assert own["extension"]["team"] == "blue" and own["extension"]["githubPAT"] == "ghp_planted"
    assert own["extension"]["jobSSH"]["key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert own["extension"]["jobSSH"]["pubKey"].startswith("ssh-rsa ")
    assert info(cluster, name)["extension"] == {"team": "blue"}
    assert cluster.get(f"/api/v2/users/{name}").json()["extension"] == {}
    database = b"".join(path.read_bytes() for path in cluster.home.glob("cluster.db*"))
    assert b"ghp_planted" not in database and b"BEGIN RSA" not in database


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"username": None}, '"username" must be a string'),
        ({"username": "a b"}, '"username" with value "a b" fails to match'),
        ({"username": "a~b"}, "fails to match"),
        ({"username": "x" * 256}, "length must be less than or equal to 255"),
        ({"password": "short"}, '"password" length must be at least 6 characters long'),
        ({"password": 123456}, '"password" must be a string'),
        ({"email": "nonsense"}, '"email" must be a valid email'),
        ({"admin": "perhaps"}, '"admin" must be a boolean'),
        ({"virtualCluster": "default"}, '"virtualCluster" must be an array'),
        ({"virtualCluster": ["no such!"]}, '"virtualCluster[0]" with value'),
        ({"extension": []}, '"extension" must be an object'),
        ({"colour": "red"}, '"colour" is not allowed'),
    ],
)
def test_invalid_new_user_is_rejected_with_a_message(
    cluster: TeamCluster, change: dict[str, Any], message: str
) -> None:
    reply = admin(cluster, "POST", "/api/v2/users", {"username": "xyz", "password": PASSWORD, **change})
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")
    assert message in reply.json()["message"], reply.json()["message"]
    assert cluster.get("/api/v2/users/xyz").status == 400


def test_user_names_are_unique_and_virtual_clusters_must_exist(cluster: TeamCluster, new_user: str) -> None:
    again = admin(cluster, "POST", "/api/v2/users", {"username": new_user, "password": PASSWORD})
    assert (again.status, again.json()["code"]) == (409, "ConflictUserError")
    assert again.json()["message"] == f"User name {new_user} already exists."
    body = {"username": "lost", "password": PASSWORD, "virtualCluster": ["nowhere"]}
    lost = admin(cluster, "POST", "/api/v2/users", body)
    assert (lost.status, lost.json()["code"]) == (404, "NoGroupError")
    body["virtualCluster"] = ["admingroup"]
    none = admin(cluster, "POST", "/api/v2/users", body)
    assert (none.status, none.json()["code"]) == (400, "NoVirtualClusterError")
    assert cluster.get("/api/v2/users/lost").status == 400


def test_only_administrators_with_user_tokens_change_users(cluster: TeamCluster, new_user: str) -> None:
    application_token = admin(cluster, "POST", "/api/v2/tokens/application").json()["token"]
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/api/v2/users", {"username": "evil", "password": PASSWORD}),
        ("PUT", "/api/v2/users", {"patch": True, "data": {"username": new_user, "admin": True}}),
        ("DELETE", f"/api/v2/users/{new_user}", None),
        ("PUT", f"/api/v2/users/{new_user}/group", {"groupname": "admingroup"}),
        ("DELETE", f"/api/v2/users/{new_user}/group", {"groupname": "default"}),
        ("PUT", f"/api/v2/users/{new_user}/grouplist", {"grouplist": ["admingroup"]}),
        ("PUT", f"/api/v2/users/{new_user}/extension", {"extension": {"a": 1}}),
        ("PUT", f"/api/v2/users/{new_user}/virtualcluster", {"virtualCluster": []}),
        ("PUT", f"/api/v2/users/{new_user}/password", {"newPassword": "another one"}),
        ("PUT", f"/api/v2/users/{new_user}/email", {"email": "a@b.c"}),
        ("PUT", f"/api/v2/users/{new_user}/admin", {"admin": True}),
        ("PUT", "/api/v1/user", {"username": new_user, "password": PASSWORD, "modify": True}),
        ("DELETE", "/api/v1/user", {"username": new_user}),
        ("PUT", f"/api/v1/user/{new_user}/virtualClusters", {"virtualClusters": "default"}),
    ]
    before = info(cluster, new_user)
    for method, path, body in calls:
        refused = cluster.ask(method, path, body)
        assert (refused.status, refused.json()["code"]) == (403, "ForbiddenUserError"), (method, path)
        assert refused.json()["message"] == NOT_ADMIN
        assert cluster.ask(method, path, body, token=None).status == 401
        by_application = cluster.ask(method, path, body, token=application_token)
        assert by_application.status == 403
        assert by_application.json()["message"] == "Applications are not allowed to do this operation."
    assert info(cluster, new_user) == before


def test_user_is_updated_whole_or_in_part(cluster: TeamCluster, new_user: str) -> None:
    whole = {
        "username": new_user,
        "email": "new@example.org",
        "virtualCluster": ["default"],
        "admin": True,
        "password": "another good one",
        "extension": {"a": 1},
    }
    for missing in set(whole) - {"username"}:
        part = {key: value for key, value in whole.items() if key != missing}
        reply = admin(cluster, "PUT", "/api/v2/users", {"data": part})
        assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")
        assert f'"data.{missing}" is required' in reply.json()["message"]
    done = admin(cluster, "PUT", "/api/v2/users", {"data": whole})
    assert (done.status, done.json()) == (201, {"message": f"Update user {new_user} successfully"})
    now = info(cluster, new_user)
    assert (now["email"], now["admin"], now["extension"]) == ("new@example.org", True, {"a": 1})
    part = {"username": new_user, "admin": False, "extension": {"b": [2]}}
    assert admin(cluster, "PUT", "/api/v2/users", {"patch": True, "data": part}).status == 201
    now = info(cluster, new_user)
    assert (now["email"], now["admin"], now["grouplist"]) == ("new@example.org", False, ["default"])
    assert now["extension"] == {"a": 1, "b": [2]}
    unknown = admin(cluster, "PUT", "/api/v2/users", {"patch": True, "data": {"username": "nobody"}})
    assert (unknown.status, unknown.json()["code"]) == (404, "NoUserError")


def test_new_password_ends_sessions_but_not_application_tokens(cluster: TeamCluster, new_user: str) -> None:
    session = cluster.log_in(new_user)
    application_token = cluster.ask("POST", "/api/v2/tokens/application", token=session).json()["token"]
    patch = {"patch": True, "data": {"username": new_user, "password": "the second password"}}
    assert admin(cluster, "PUT", "/api/v2/users", patch).status == 201
    assert cluster.get("/api/v2/tokens/check", token=session).status == 401
    assert cluster.get("/api/v2/tokens/check", token=application_token).status == 200
    credentials = {"username": new_user, "password": PASSWORD}
    assert cluster.ask("POST", "/api/v2/authn/basic/login", credentials, token=None).status == 400
    credentials["password"] = "the second password"
    assert cluster.ask("POST", "/api/v2/authn/basic/login", credentials, token=None).status == 200


def test_users_change_themselves(cluster: TeamCluster, new_user: str) -> None:
    token = cluster.log_in(new_user)

    def me(patch: bool = True, **data: Any) -> Reply:
        body = {"patch": patch, "data": {"username": new_user, **data}}
        return cluster.ask("PUT", "/api/v2/users/me", body, token=token)

    assert me(email="me@example.org", extension={"a": 1}).status == 201
    assert info(cluster, new_user)["email"] == "me@example.org"
    assert me(patch=False, email="").status == 400
    assert me(newPassword="a newer password").status == 400
    wrong = me(newPassword="a newer password", oldPassword="not it")
    assert (wrong.status, wrong.json()["message"]) == (403, "Pls input the correct password.")
    other = cluster.ask("PUT", "/api/v2/users/me", {"patch": True, "data": {"username": "bob"}}, token=token)
    assert (other.status, other.json()["message"]) == (403, "Can't update other user's data")
    assert me(admin=True).status == 400, "users cannot make themselves administrators"
    changed = me(newPassword="a newer password", oldPassword=PASSWORD)
    assert (changed.status, changed.json()) == (201, {"message": f"Update user {new_user} successfully"})
    assert me(email="").status == 401, "the new password ended the session"
    credentials = {"username": new_user, "password": "a newer password"}
    assert cluster.ask("POST", "/api/v2/authn/basic/login", credentials, token=None).status == 200


def test_user_changes_all_properties_without_an_extension(cluster: TeamCluster, new_user: str) -> None:
    """As the JavaScript SDK's own tests do."""
    token = cluster.log_in(new_user)
    kept = {"patch": True, "data": {"username": new_user, "extension": {"kept": 1}}}
    assert cluster.ask("PUT", "/api/v2/users/me", kept, token=token).status == 201
    same = {"username": new_user, "email": "", "newPassword": PASSWORD, "oldPassword": PASSWORD}
    for wrong, status in ((same | {"oldPassword": "not it"}, 403), (same, 201)):
        reply = cluster.ask("PUT", "/api/v2/users/me", {"patch": False, "data": wrong}, token=token)
        assert reply.status == status, reply.text
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200, "the same password ends nothing"
    data = {
        "username": new_user,
        "email": "all@example.org",
        "newPassword": "a newer password",
        "oldPassword": PASSWORD,
    }
    changed = cluster.ask("PUT", "/api/v2/users/me", {"patch": False, "data": data}, token=token)
    assert (changed.status, changed.json()) == (201, {"message": f"Update user {new_user} successfully"})
    credentials = {"username": new_user, "password": "a newer password"}
    token = cluster.ask("POST", "/api/v2/authn/basic/login", credentials, token=None).json()["token"]
    now = cluster.get(f"/api/v2/users/{new_user}", token=token).json()
    assert (now["email"], now["extension"]["kept"]) == ("all@example.org", 1)


def test_legacy_routes_change_single_properties(cluster: TeamCluster, new_user: str) -> None:
    where, token = f"/api/v2/user/{new_user}", cluster.log_in(new_user)

    def put_own(field: str, body: dict[str, Any]) -> Reply:
        return cluster.ask("PUT", f"{where}/{field}", body, token=token)

    assert put_own("extension", {"extension": {"k": "v"}}).json() == {
        "message": "Update user extension data successfully."
    }
    assert put_own("email", {"email": "x@example.org"}).json() == {
        "message": "Update user email data successfully."
    }
    now = info(cluster, new_user)
    assert (now["email"], now["extension"]) == ("x@example.org", {"k": "v"})
    wrong = put_own("password", {"newPassword": "third password"})
    assert (wrong.status, wrong.json()["message"]) == (403, "Pls input the correct password.")
    done = put_own("password", {"oldPassword": PASSWORD, "newPassword": "third password"})
    assert (done.status, done.json()) == (201, {"message": "update user password successfully."})
    assert put_own("email", {"email": ""}).status == 401
    by_admin = admin(cluster, "PUT", f"{where}/password", {"newPassword": "fourth password"})
    assert by_admin.status == 201
    made = admin(cluster, "PUT", f"{where}/admin", {"admin": True})
    assert made.json() == {"message": "Update user admin permission successfully."}
    assert info(cluster, new_user)["admin"] is True
    refused = admin(cluster, "PUT", f"{where}/virtualcluster", {"virtualCluster": []})
    assert (refused.status, refused.json()["message"]) == (403, "Admin's virtual clusters cannot be updated.")
    assert admin(cluster, "PUT", f"{where}/admin", {"admin": False}).status == 201
    updated = admin(cluster, "PUT", f"{where}/virtualcluster", {"virtualCluster": ["default"]})
    assert updated.json() == {"message": "Update user virtualCluster data successfully."}
    unknown = admin(cluster, "PUT", f"{where}/virtualcluster", {"virtualCluster": ["nowhere"]})
    assert (unknown.status, unknown.json()["code"]) == (400, "NoVirtualClusterError")
    for what, body in (
        ("extension", {"extension": {}}),
        ("email", {"email": ""}),
        ("password", {"newPassword": PASSWORD}),
        ("admin", {"admin": False}),
        ("virtualcluster", {"virtualCluster": []}),
    ):
        missing = admin(cluster, "PUT", f"/api/v2/user/nobody/{what}", body)
        assert (missing.status, missing.json()["code"]) == (404, "NoUserError")
        assert missing.json()["message"] == "User nobody not found."


def test_user_is_added_to_and_removed_from_groups(cluster: TeamCluster, new_user: str) -> None:
    group = f"g{next(_numbers)}"
    assert admin(cluster, "POST", "/api/v2/groups", {"groupname": group}).status == 201
    where = f"/api/v2/users/{new_user}"
    put = admin(cluster, "PUT", f"{where}/group", {"groupname": group})
    assert (put.status, put.json()) == (201, {"message": f"User {new_user} is added into group {group}"})
    assert admin(cluster, "PUT", f"{where}/group", {"groupname": group}).status == 201
    assert info(cluster, new_user)["grouplist"] == ["default", group]
    gone = admin(cluster, "DELETE", f"{where}/group", {"groupname": group})
    assert gone.json() == {"message": f"User {new_user} is removed from group {group}"}
    assert info(cluster, new_user)["grouplist"] == ["default"]
    whole = admin(cluster, "PUT", f"{where}/grouplist", {"grouplist": [group]})
    assert (whole.status, whole.json()) == (201, {"message": "update user grouplist successfully."})
    assert info(cluster, new_user)["grouplist"] == [group]
    assert info(cluster, new_user)["virtualCluster"] == ["default"], "which all users have"
    for path, body, message in (
        ("group", {"groupname": "nogroup"}, "Updated nonexistent group: nogroup"),
        ("grouplist", {"grouplist": [group, "nogroup"]}, "Updated nonexistent grouplist: nogroup"),
    ):
        unknown = admin(cluster, "PUT", f"{where}/{path}", body)
        assert (unknown.status, unknown.json()["code"]) == (404, "NoGroupError")
        assert unknown.json()["message"] == message
    assert admin(cluster, "PUT", "/api/v2/users/nobody/group", {"groupname": group}).status == 404
    assert admin(cluster, "PUT", f"{where}/group", {"groupname": "a-b"}).status == 400
    assert admin(cluster, "DELETE", f"/api/v2/groups/{group}").status == 200
    assert info(cluster, new_user)["grouplist"] == []


def test_user_is_deleted_with_tokens_but_administrators_are_kept(cluster: TeamCluster, new_user: str) -> None:
    token = cluster.log_in(new_user)
    assert admin(cluster, "PUT", f"/api/v2/users/{new_user}/admin", {"admin": True}).status == 201
    assert cluster.get("/api/v2/tokens/check", token=token).json()["admin"] is True
    refused = admin(cluster, "DELETE", f"/api/v2/users/{new_user}")
    assert (refused.status, refused.json()["code"]) == (403, "RemoveAdminError")
    assert refused.json()["message"] == f"Admin {new_user} is not allowed to remove."
    assert admin(cluster, "PUT", f"/api/v2/users/{new_user}/admin", {"admin": False}).status == 201
    assert cluster.get("/api/v2/tokens/check", token=token).json()["admin"] is False
    gone = admin(cluster, "DELETE", f"/api/v2/users/{new_user}")
    assert (gone.status, gone.json()) == (200, {"message": "user is removed successfully"})
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    again = admin(cluster, "DELETE", f"/api/v2/users/{new_user}")
    assert (again.status, again.json()["code"]) == (404, "NoUserError")


def test_jobs_of_a_deleted_user_are_stopped(cluster: TeamCluster, new_user: str, name: str) -> None:
    token = cluster.log_in(new_user)
    assert cluster.submit(job(name, "sleep 600"), token=token).status == 202
    waits = cluster.submit(job(f"{name}-waits", "true", cpu=4096), token=token)
    assert waits.status == 202

    def states() -> set[str]:
        found = cluster.get(f"/api/v2/jobs?username={new_user}").json()
        return {one["state"] for one in found}

    eventually(lambda: states() == {"RUNNING", "WAITING"}, "one running and one pending job")
    assert admin(cluster, "DELETE", f"/api/v2/users/{new_user}").status == 200
    eventually(lambda: states() == {"STOPPED"}, "stopped jobs")


def test_disabled_user_is_refused_while_jobs_go_on(cluster: TeamCluster, new_user: str, name: str) -> None:
    session = cluster.log_in(new_user)
    made = cluster.ask("POST", "/api/v2/tokens/application", {}, token=session)
    application = made.json()["token"]
    task_token = cluster.token_of_job(name, session)
    job_path = f"/api/v2/jobs/{new_user}~{name}"

    def state() -> str:
        detail = cluster.get(job_path, token=task_token)
        return str(detail.json()["jobStatus"]["state"])

    # The task runs before the cluster has recorded it.
    eventually(lambda: state() == "RUNNING", "the running job")
    open_session = WebSocket(cluster, f"{job_path}/exec", token=task_token)
    open_session.send("start", command=["sh", "-c", "echo up; sleep 600"])
    open_session.read_until(b"up")
    disabled = admin(cluster, "PUT", f"/api/v2/users/{new_user}/disabled", {"disabled": True})
    assert (disabled.status, disabled.json()) == (
        201,
        {"message": f"User {new_user} is disabled.", "unfinishedJobs": 1},
    )
    assert info(cluster, new_user)["disabled"] is True

    credentials = {"username": new_user, "password": PASSWORD}
    refused = [
        cluster.ask("POST", path, credentials, token=None)
        for path in ("/api/v2/authn/basic/login", "/api/v2/authn/session")
    ]
    refused += [cluster.get("/api/v2/jobs", token=token) for token in (session, application)]
    for reply in refused:
        assert (reply.status, reply.json()["code"]) == (401, "DisabledUserError"), reply.text
        assert reply.json()["message"] == f"User {new_user} is disabled."
    wrong = cluster.ask(
        "POST", "/api/v2/authn/basic/login", {**credentials, "password": "not this one"}, token=None
    )
    assert wrong.json()["code"] == "IncorrectPasswordError"

    # The job goes on with its own token, but starts no other.
    assert state() == "RUNNING"
    another = cluster.submit(job(f"{name}-2", "true"), token=task_token)
    assert (another.status, another.json()["code"]) == (403, "DisabledUserError")
    # Nor does a copy of its token lead into the job.
    open_session.finish()
    with pytest.raises(Refused) as no_session:
        WebSocket(cluster, f"{job_path}/exec", token=task_token)
    with pytest.raises(Refused) as no_port:
        WebSocket(cluster, f"{job_path}/forward?port=80", token=task_token, protocols="pai.forward.v1")
    no_app = cluster.ask("POST", f"{job_path}/apps?port=80", token=task_token)
    for reply, action in (
        (no_session.value.reply, "run commands in"),
        (no_port.value.reply, "forward ports of"),
        (no_app, "forward ports of"),
    ):
        assert (reply.status, reply.json()["code"]) == (403, "DisabledUserError"), reply.text
        sentence = f"User {new_user} is disabled: no token of the user may {action} a job."
        assert reply.json()["message"] == sentence

    enabled = admin(cluster, "PUT", f"/api/v2/users/{new_user}/disabled", {"disabled": False})
    assert enabled.json()["message"] == f"User {new_user} is enabled."
    for token in (session, application, cluster.log_in(new_user)):
        assert cluster.get("/api/v2/jobs?limit=1", token=token).status == 200
    stop = {"value": "STOP"}
    assert cluster.ask("PUT", f"{job_path}/executionType", stop, token=session).status == 202


def test_user_is_disabled_by_administrators_only_and_not_the_last_of_them(
    cluster: TeamCluster, new_user: str
) -> None:
    path = f"/api/v2/users/{new_user}/disabled"
    assert cluster.ask("PUT", path, {"disabled": True}).json()["message"] == NOT_ADMIN
    assert admin(cluster, "PUT", "/api/v2/users/absent/disabled", {"disabled": True}).status == 404
    assert admin(cluster, "PUT", path, {"disabled": "perhaps"}).status == 400
    last = admin(cluster, "PUT", "/api/v2/users/admin/disabled", {"disabled": True})
    assert last.json()["message"] == "This would leave the cluster without an administrator."
    # A disabled administrator does not count.
    assert admin(cluster, "PUT", f"/api/v2/users/{new_user}/admin", {"admin": True}).status == 201
    assert admin(cluster, "PUT", path, {"disabled": True}).status == 201
    demoted = admin(cluster, "PUT", "/api/v2/users/admin/admin", {"admin": False})
    assert demoted.json()["message"] == "This would leave the cluster without an administrator."
    assert admin(cluster, "PUT", f"/api/v2/users/{new_user}/admin", {"admin": False}).status == 201


KEYS = [
    f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnL2v3bqMCvFdvc0yI2l3zZs7qCkz0k1cAq8W1jT{n:03d}" for n in range(70)
]


def test_keys_that_two_browsers_add_and_remove_at_once_are_all_kept(
    cluster: TeamCluster, new_user: str
) -> None:
    session = cluster.log_in(new_user)
    path = f"/api/v2/users/{new_user}/ssh-keys"

    def change(method: str, line: str) -> int:
        return cluster.ask(method, path, {"value": line}, token=session).status

    def stored() -> list[str]:
        extension = cluster.get(f"/api/v2/users/{new_user}", token=session).json()["extension"]
        assert "jobSSH" in extension
        return [key["value"] for key in extension.get("sshKeys", [])]

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda line: change("POST", line), KEYS[:8])) == {201}
        assert sorted(stored()) == KEYS[:8]
        mixed = [("DELETE", KEYS[0]), ("DELETE", KEYS[1]), ("POST", KEYS[8]), ("POST", KEYS[9])]
        assert set(threads.map(lambda one: change(*one), mixed)) == {201}
    assert sorted(stored()) == KEYS[2:10]


def test_keys_are_checked(cluster: TeamCluster, new_user: str) -> None:
    session = cluster.log_in(new_user)
    path = f"/api/v2/users/{new_user}/ssh-keys"

    def add(value: str, **more: str) -> Reply:
        return cluster.ask("POST", path, {"value": value, **more}, token=session)

    assert add(f"{KEYS[0]} me@laptop").json()["message"] == "The key me@laptop is added."
    same = add(f"{KEYS[0]} another comment")
    assert (same.status, same.json()["message"]) == (409, "You have this key already.")
    for wrong, why in (
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
        (f"{KEYS[1]}\n{KEYS[2]}", "one line"),
        (f"{KEYS[1]} {'x' * 17000}", "at most"),
        ("ssh-ed25519", "no public key"),
        ("", "no public key"),
    ):
        reply = add(wrong)
        assert reply.status == 400 and why in reply.json()["message"], reply.text
    assert cluster.ask("POST", path, {"value": KEYS[1]}).status == 403  # as alice
    gone = cluster.ask("DELETE", path, {"value": KEYS[5]}, token=session)
    assert (gone.status, gone.json()["code"]) == (404, "NoKeyError")
    for line in KEYS[1:64]:
        assert add(line, title="many").status == 201
    full = add(KEYS[64])
    assert (full.status, full.json()["message"]) == (400, "A user has at most 64 keys.")


def test_last_administrator_cannot_be_demoted(cluster: TeamCluster) -> None:
    for method, path, body in (
        ("PUT", "/api/v2/users/admin/admin", {"admin": False}),
        ("PUT", "/api/v2/users/admin/grouplist", {"grouplist": ["default"]}),
        ("DELETE", "/api/v2/users/admin/group", {"groupname": "admingroup"}),
        ("PUT", "/api/v2/groups/admingroup/extension", {"extension": {"acls": {"admin": False}}}),
        ("DELETE", "/api/v2/groups/admingroup", None),
    ):
        reply = admin(cluster, method, path, body)
        assert (reply.status, reply.json()["code"]) == (403, "ForbiddenUserError"), path
    assert info(cluster, "admin")["admin"] is True


def test_version_1_creates_changes_and_deletes_users(cluster: TeamCluster) -> None:
    name = f"old-{next(_numbers)}"
    form = urlencode({"username": name, "password": PASSWORD, "admin": "false", "modify": "false"})
    made = cluster.ask(
        "PUT",
        "/api/v1/user",
        form,
        {"Content-Type": "application/x-www-form-urlencoded"},
        token=cluster.tokens["admin"],
    )
    assert (made.status, made.json()) == (201, {"message": "update successfully"})
    again = admin(cluster, "PUT", "/api/v1/user", {"username": name, "password": PASSWORD})
    assert (again.status, again.json()["code"]) == (409, "ConflictUserError")
    token = cluster.log_in(name)
    change = {"username": name, "password": "self made one", "oldPassword": PASSWORD, "modify": True}
    assert cluster.ask("PUT", "/api/v1/user", change, token=token).status == 201
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    vcs = admin(cluster, "PUT", f"/api/v1/user/{name}/virtualClusters", {"virtualClusters": "default"})
    assert (vcs.status, vcs.json()["message"]) == (201, "update user virtual clusters successfully")
    bad = admin(cluster, "PUT", f"/api/v1/user/{name}/virtualClusters", {"virtualClusters": "no,where"})
    assert (bad.status, bad.json()["code"]) == (400, "NoVirtualClusterError")
    missing = {"username": "nobody", "password": PASSWORD, "modify": True}
    assert admin(cluster, "PUT", "/api/v1/user", missing).json()["code"] == "NoUserError"
    gone = admin(cluster, "DELETE", "/api/v1/user", {"username": name})
    assert (gone.status, gone.json()) == (200, {"message": "remove successfully"})
    assert admin(cluster, "DELETE", "/api/v1/user", {"username": name}).status == 404
    assert (
        admin(cluster, "DELETE", "/api/v1/user", {"username": "admin"}).json()["code"] == "RemoveAdminError"
    )
