"""Login of PaddleCloud's clients."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import pytest

from support.paddlecloud_go_client import GoClient
from support.server_fixture import eventually
from support.team_cluster import PASSWORD, TeamCluster

NewTeam = Callable[..., TeamCluster]


def test_token_is_hexadecimal_and_the_same_at_every_login(go: GoClient) -> None:
    first = go.token
    assert re.fullmatch("[0-9a-f]{40}", first)
    assert go.fetch_token() == first
    assert go.call("GET", "/api/v1/token2user/").json() == {"user": "alice"}


def test_users_have_different_tokens(go: GoClient, bob: GoClient) -> None:
    assert go.token != bob.token
    assert bob.call("GET", "/api/v1/token2user").json() == {"user": "bob"}


def test_wrong_password_is_400_with_djangos_message(cluster: TeamCluster) -> None:
    for credentials in ({"username": "alice", "password": "wrong one"}, {"username": "x", "password": "y"}):
        reply = cluster.ask("POST", "/api-token-auth/", credentials, token=None)
        assert reply.status == 400
        assert reply.json() == {"non_field_errors": ["Unable to log in with provided credentials."]}


@pytest.mark.parametrize("token", ["", "0" * 40, "nonsense"])
def test_request_without_a_valid_token_is_401_with_a_detail(cluster: TeamCluster, token: str) -> None:
    headers = {"Authorization": f"Token {token}"} if token else {}
    reply = cluster.ask("GET", "/api/v1/quota/", headers=headers, token=None)
    assert reply.status == 401
    assert reply.json()["detail"]


def test_token_is_the_password_of_basic_authentication(cluster: TeamCluster, go: GoClient) -> None:
    for user, status in (("alice", 200), ("bob", 401)):
        encoded = base64.b64encode(f"{user}:{go.token}".encode()).decode()
        reply = cluster.ask(
            "GET", "/api/v1/token2user/", headers={"Authorization": f"Basic {encoded}"}, token=None
        )
        assert reply.status == status


def test_changed_token_is_refused(go: GoClient) -> None:
    go.token = go.token[:-1] + ("0" if go.token[-1] != "0" else "1")
    assert go.call("GET", "/api/v1/token2user/").status_line.startswith("HTTP/1.1 401")


def test_token_can_be_revoked_by_its_user(new_team: NewTeam) -> None:
    team = new_team()
    client = GoClient(team.address, "alice", PASSWORD)
    token = client.fetch_token()
    assert token in team.get("/api/v2/tokens").json()["tokens"]
    assert team.ask("DELETE", f"/api/v2/tokens/{token}").status == 200
    assert client.call("GET", "/api/v1/token2user/").status_line.startswith("HTTP/1.1 401")
    assert client.fetch_token() != token


@pytest.mark.slow
def test_token_survives_a_restart(new_team: NewTeam) -> None:
    team = new_team()
    client = GoClient(team.address, "alice", PASSWORD)
    token = client.fetch_token()
    assert team.terminate() == 0
    team.start()
    client.address = team.address
    user = eventually(lambda: client.call("GET", "/api/v1/token2user/").json())
    assert user == {"user": "alice"}
    assert client.fetch_token() == token


def test_health_is_ok_to_paddlecloud(cluster: TeamCluster, go: GoClient) -> None:
    """OpenPAI's own text is at the path without a slash."""
    for headers in ({}, {"Authorization": f"Token {go.token}"}):
        reply = cluster.ask("GET", "/healthz/", headers=headers, token=None)
        assert (reply.status, reply.text) == (200, "OK")
        assert cluster.ask("GET", "/healthz", headers=headers, token=None).text == "Pylon ready."


def test_leading_double_slash_of_an_endpoint_with_a_slash(cluster: TeamCluster) -> None:
    client = GoClient(cluster.address, "alice", PASSWORD, prefix="/")
    client.fetch_token()
    assert client.sent[-1].startswith(b"POST //api-token-auth/ HTTP/1.1\r\n")
    assert client.call("GET", "/api/v1/token2user/").json() == {"user": "alice"}
