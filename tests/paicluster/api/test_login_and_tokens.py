"""Info, logging in, and the life of tokens, over real HTTP."""

from __future__ import annotations

import base64
from urllib.parse import urlencode

import pytest

from support.team_cluster import PASSWORD, TeamCluster

LOGIN = "/api/v2/authn/basic/login"


@pytest.mark.parametrize("prefix", ["", "/rest-server"])
def test_info_is_open_to_everybody(cluster: TeamCluster, prefix: str) -> None:
    reply = cluster.get(prefix + "/api/v2/info", token=None)
    assert reply.status == 200
    said = reply.json()
    assert said["name"] == "PAI RESTful API"
    assert said["launcherType"] == "k8s"
    assert said["authnMethod"] == "basic"
    assert said["version"].startswith("v")
    assert cluster.get(prefix + "/api/v2", token=None).text == "PAI RESTful API v2 (beta version)"
    how = cluster.get(prefix + "/api/v2/authn/info", token=None).json()
    assert how == {"authn_type": "basic", "loginURI": LOGIN, "loginURIMethod": "post"}


@pytest.mark.parametrize("path", [LOGIN, "/api/v1/token", "/rest-server" + LOGIN])
def test_logging_in_takes_json_and_forms(cluster: TeamCluster, path: str) -> None:
    who = {"username": "alice", "password": PASSWORD, "expiration": "4000"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for reply in (
        cluster.ask("POST", path, who, token=None),
        cluster.ask("POST", path, urlencode(who), form, token=None),
    ):
        assert reply.status == 200, reply.text
        said = reply.json()
        assert (said["user"], said["admin"], said["hasGitHubPAT"]) == ("alice", False, False)
        assert cluster.get("/api/v2/tokens/check", token=said["token"]).status == 200


def test_a_wrong_password_and_an_unknown_user_are_told_apart_as_the_original_does(
    cluster: TeamCluster,
) -> None:
    wrong = cluster.ask("POST", LOGIN, {"username": "alice", "password": "not this one"}, token=None)
    assert (wrong.status, wrong.json()["code"]) == (400, "IncorrectPasswordError")
    unknown = cluster.ask("POST", LOGIN, {"username": "nobody", "password": PASSWORD}, token=None)
    assert (unknown.status, unknown.json()["code"]) == (400, "NoUserError")


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '"text"', "null", "{}", '{"username": 3, "password": []}', '{"username": ""}', "\xff"],
)
def test_a_malformed_login_is_refused_in_one_sentence(cluster: TeamCluster, body: str) -> None:
    reply = cluster.ask("POST", LOGIN, body.encode("latin-1"), token=None)
    assert (reply.status, reply.json()["code"]) == (400, "InvalidParametersError")


def test_no_token_and_a_bad_token_have_the_originals_words(cluster: TeamCluster) -> None:
    guest = cluster.get("/api/v2/jobs", token=None)
    assert guest.status == 401
    assert guest.json()["code"] == "UnauthorizedUserError"
    assert guest.json()["message"] == "Guest is not allowed to do this operation."
    for bad in ("nonsense", "a.b.c", cluster.token[:-3] + "xyz", "é"):
        reply = cluster.get("/api/v2/jobs", token=None, headers={"Authorization": f"Bearer {bad}"})
        assert (reply.status, reply.json()["message"]) == (401, "Your token is invalid.")
    for header in ("Bearer", "Digest abc", "Basic !!!", "Basic " + base64.b64encode(b"\xff:x").decode()):
        assert cluster.get("/api/v2/jobs", token=None, headers={"Authorization": header}).status == 401


def test_check_tells_what_a_token_stands_for(cluster: TeamCluster) -> None:
    said = cluster.get("/api/v2/tokens/check").json()
    assert (said["username"], said["admin"], said["application"]) == ("alice", False, False)
    assert said["exp"] > said["iat"]
    assert cluster.get("/api/v2/tokens/check", token=cluster.tokens["admin"]).json()["admin"] is True


def test_a_session_is_listed_and_ends_with_its_logout(cluster: TeamCluster) -> None:
    token = cluster.log_in("bob")
    assert token in cluster.get("/api/v2/tokens", token=token).json()["tokens"]
    gone = cluster.ask("DELETE", "/api/v2/authn/basic/logout", token=token)
    assert (gone.status, gone.json()) == (200, {"message": "Logout successfully"})
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert token not in cluster.get("/api/v2/tokens", token=cluster.tokens["bob"]).json()["tokens"]


def test_tokens_come_in_pages(cluster: TeamCluster) -> None:
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


def test_an_application_token_works_in_both_headers_but_not_for_tokens(cluster: TeamCluster) -> None:
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
    said = cluster.get("/api/v2/tokens/check", token=None, headers={"Authorization": "Basic " + basic}).json()
    assert (said["username"], said["application"]) == ("alice", True)
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


def test_a_session_token_is_refused_in_a_basic_header(cluster: TeamCluster) -> None:
    basic = base64.b64encode(f"alice:{cluster.token}".encode()).decode()
    assert cluster.get("/api/v2/jobs", token=None, headers={"Authorization": "Basic " + basic}).status == 401


def test_a_revoked_token_is_dead_at_once(cluster: TeamCluster) -> None:
    token = cluster.ask("POST", "/api/v2/tokens/application").json()["token"]
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200
    reply = cluster.ask("DELETE", f"/api/v2/tokens/{token}")
    assert (reply.status, reply.json()) == (200, {"message": "revoke successfully"})
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
    assert token not in cluster.get("/api/v2/tokens").json()["tokens"]


def test_a_token_of_somebody_else_cannot_be_revoked_but_by_an_administrator(cluster: TeamCluster) -> None:
    token = cluster.log_in("bob")
    assert cluster.ask("DELETE", f"/api/v2/tokens/{token}").status == 403
    assert cluster.get("/api/v2/tokens/check", token=token).status == 200
    assert cluster.ask("DELETE", f"/api/v2/tokens/{token}", token=cluster.tokens["admin"]).status == 200
    assert cluster.get("/api/v2/tokens/check", token=token).status == 401
