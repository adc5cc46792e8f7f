"""Info, login and token lifecycle over real HTTP."""

from __future__ import annotations

import base64
from urllib.parse import urlencode

import pytest

from support.team_cluster import PASSWORD, TeamCluster

LOGIN = "/api/v2/authn/basic/login"


@pytest.mark.parametrize("prefix", ["", "/rest-server"])
def test_info_needs_no_token(cluster: TeamCluster, prefix: str) -> None:
    reply = cluster.get(prefix + "/api/v2/info", token=None)
    assert reply.status == 200
    body = reply.json()
    assert body["name"] == "PAI RESTful API"
    assert body["launcherType"] == "k8s"
    assert body["authnMethod"] == "basic"
    assert body["version"].startswith("v")
    assert cluster.get(prefix + "/api/v2", token=None).text == "PAI RESTful API v2 (beta version)"
    authn_info = cluster.get(prefix + "/api/v2/authn/info", token=None).json()
    assert authn_info == {"authn_type": "basic", "loginURI": LOGIN, "loginURIMethod": "post"}


@pytest.mark.parametrize("path", [LOGIN, "/api/v1/token", "/rest-server" + LOGIN])
def test_login_accepts_json_and_forms(cluster: TeamCluster, path: str) -> None:
    credentials = {"username": "alice", "password": PASSWORD, "expiration": "4000"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for reply in (
        cluster.ask("POST", path, credentials, token=None),
        cluster.ask("POST", path, urlencode(credentials), form, token=None),
    ):
        assert reply.status == 200, reply.text
        body = reply.json()
        assert (body["user"], body["admin"], body["hasGitHubPAT"]) == ("alice", False, False)
        assert cluster.get("/api/v2/tokens/check", token=body["token"]).status == 200


def test_wrong_password_and_unknown_user_have_openpai_codes(
    cluster: TeamCluster,
) -> None:
    wrong = cluster.ask("POST", LOGIN, {"username": "alice", "password": "not this one"}, token=None)
    assert (wrong.status, wrong.json()["code"]) == (400, "IncorrectPasswordError")
    short = cluster.ask(
        "POST", "/api/v2/authn/basic/login", {"username": "alice", "password": "x"}, token=None
    )
    assert (short.status, short.json()) == (wrong.status, wrong.json())
    unknown = cluster.ask("POST", LOGIN, {"username": "nobody", "password": PASSWORD}, token=None)
    assert (unknown.status, unknown.json()["code"]) == (400, "NoUserError")


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '"text"', "null", "{}", '{"username": 3, "password": []}', '{"username": ""}', "\xff"],
)
def test_malformed_login_is_rejected(cluster: TeamCluster, body: str) -> None:
    reply = cluster.ask("POST", LOGIN, body.encode("latin-1"), token=None)
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")


def test_missing_and_bad_token_have_openpai_messages(cluster: TeamCluster) -> None:
    guest = cluster.get("/api/v2/jobs", token=None)
    assert guest.status == 401
    assert guest.json()["code"] == "UnauthorizedUserError"
    assert guest.json()["message"] == "Guest is not allowed to do this operation."
    for bad in ("nonsense", "a.b.c", cluster.token[:-3] + "xyz", "é"):
        reply = cluster.get("/api/v2/jobs", token=None, headers={"Authorization": f"Bearer {bad}"})
        assert (reply.status, reply.json()["message"]) == (401, "Your token is invalid.")
    for header in ("Bearer", "Digest abc", "Basic !!!", "Basic " + base64.b64encode(b"\xff:x").decode()):
        assert cluster.get("/api/v2/jobs", token=None, headers={"Authorization": header}).status == 401


def test_check_returns_the_token_payload(cluster: TeamCluster) -> None:
    body = cluster.get("/api/v2/tokens/check").json()
    assert (body["username"], body["admin"], body["application"]) == ("alice", False, False)
    assert body["exp"] > body["iat"]
    assert cluster.get("/api/v2/tokens/check", token=cluster.tokens["admin"]).json()["admin"] is True


def test_session_is_listed_and_ends_at_logout(cluster: TeamCluster) -> None:
    token = cluster.log_in("bob")
    assert token in cluster.get("/api/v2/tokens", token=token).json()["tokens"]
    gone = cluster.ask("DELETE", "/api/v2/authn/basic/logout", token=token)
    assert (gone.status, gone.json()) == (200, {"message": "Logout successfully"})
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert token not in cluster.get("/api/v2/tokens", token=cluster.tokens["bob"]).json()["tokens"]


def test_tokens_are_paged(cluster: TeamCluster) -> None:
    session = cluster.log_in("bob")
    made = [
        cluster.ask("POST", "/api/v2/tokens/application", token=session).json()["token"] for _ in range(3)
    ]
    everything = cluster.get("/api/v2/tokens", token=session).json()["tokens"]
    pages = [
        cluster.get(f"/api/v1/token?offset={at}&limit=2", token=session).json()["tokens"]
        for at in range(0, len(everything), 2)
    ]
    assert [token for page in pages for token in page] == everything
    assert cluster.get("/api/v2/tokens?limit=-1", token=session).status == 400
    for token in (*made, session):
        cluster.ask("DELETE", f"/api/v2/tokens/{token}", token=session)


def test_application_token_works_in_both_headers_but_not_for_tokens(cluster: TeamCluster) -> None:
    made = cluster.ask("POST", "/api/v2/tokens/application")
    assert made.status == 200
    token = made.json()["token"]
    assert made.json()["application"] is True
    assert "exp" not in cluster.get("/api/v2/tokens/check", token=token).json()
    basic = base64.b64encode(f"alice:{token}".encode()).decode()
    assert (
        cluster.get("/api/v2/jobs?limit=1", token=None, headers={"Authorization": "Basic " + basic}).status
        == 200
    )
    body = cluster.get("/api/v2/tokens/check", token=None, headers={"Authorization": "Basic " + basic}).json()
    assert (body["username"], body["application"]) == ("alice", True)
    other = base64.b64encode(f"bob:{token}".encode()).decode()
    assert cluster.get("/api/v2/jobs", token=None, headers={"Authorization": "Basic " + other}).status == 401
    for method, path in (
        ("GET", "/api/v2/tokens"),
        ("POST", "/api/v2/tokens/application"),
        ("DELETE", f"/api/v2/tokens/{token}"),
    ):
        reply = cluster.ask(method, path, token=token)
        assert reply.status == 403
        assert reply.json()["message"] == "Applications are not allowed to do this operation."


def test_session_token_is_rejected_in_basic_header(cluster: TeamCluster) -> None:
    basic = base64.b64encode(f"alice:{cluster.token}".encode()).decode()
    assert cluster.get("/api/v2/jobs", token=None, headers={"Authorization": "Basic " + basic}).status == 401


def test_revoked_token_is_invalid_at_once(cluster: TeamCluster) -> None:
    token = cluster.ask("POST", "/api/v2/tokens/application").json()["token"]
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200
    reply = cluster.ask("DELETE", f"/api/v2/tokens/{token}")
    assert (reply.status, reply.json()) == (200, {"message": "revoke successfully"})
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert token not in cluster.get("/api/v2/tokens").json()["tokens"]


def test_only_administrators_revoke_tokens_of_other_users(cluster: TeamCluster) -> None:
    token = cluster.log_in("bob")
    assert cluster.ask("DELETE", f"/api/v2/tokens/{token}").status == 403
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200
    assert cluster.ask("DELETE", f"/api/v2/tokens/{token}", token=cluster.tokens["admin"]).status == 200
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401


def test_application_token_ends_when_its_user_says(cluster: TeamCluster) -> None:
    made = cluster.ask("POST", "/api/v2/tokens/application", {"name": "nightly", "expiration": 3600})
    assert made.status == 200, made.text
    payload = cluster.get("/api/v2/tokens/check", token=made.json()["token"]).json()
    assert payload["exp"] - payload["iat"] == 3600
    listed = cluster.get("/api/v2/tokens?details=only").json()
    assert listed["tokens"] == []
    row = next(row for row in listed["details"] if row["id"] == payload["jti"])
    assert row["expirationTime"] - row["createdTime"] == 3_600_000


@pytest.mark.parametrize("expiration", [0, -1, 59, 1e12, "soon", None, [], True])
def test_lifetime_of_a_token_must_be_sensible(cluster: TeamCluster, expiration: object) -> None:
    refused = cluster.ask("POST", "/api/v2/tokens/application", {"expiration": expiration})
    assert (refused.status, refused.json()["code"]) == (400, "InvalidParametersError")
    assert "expiration" in refused.json()["message"]
