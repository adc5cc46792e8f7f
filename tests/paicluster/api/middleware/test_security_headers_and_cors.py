"""What browsers are told, and which pages may use the API."""

from __future__ import annotations

from collections.abc import Callable

from support.team_cluster import TeamCluster

NewTeam = Callable[..., TeamCluster]
PAGE = "https://portal.example.com"


def test_every_answer_has_the_headers_that_keep_browsers_out_of_trouble(team: TeamCluster) -> None:
    for path in ("/api/v2/info", "/api/v2/jobs", "/nowhere", "/healthz", "/api/v1/quota", "/openapi.json"):
        reply = team.get(path)
        assert reply.headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in reply.headers["content-security-policy"], path
        assert reply.headers["cache-control"] == "no-store", path
        assert reply.headers["referrer-policy"] == "no-referrer", path
        assert "server" not in reply.headers
        assert "strict-transport-security" not in reply.headers


def test_no_page_may_use_the_api_by_default(team: TeamCluster) -> None:
    for method in ("GET", "OPTIONS"):
        reply = team.ask(method, "/api/v2/info", headers={"Origin": PAGE})
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_pages_of_configured_origins_may_and_others_may_not(new_team: NewTeam) -> None:
    cluster = new_team(f"listen: {{cors-origins: ['{PAGE}']}}\n")
    reply = cluster.get("/api/v2/jobs?limit=1", headers={"Origin": PAGE})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-credentials" not in reply.headers
    assert reply.headers["vary"] == "Origin"
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    first = cluster.ask("OPTIONS", "/api/v2/jobs", headers=asked, token=None)
    assert first.status == 204
    assert "PUT" in first.headers["access-control-allow-methods"]
    assert first.headers["access-control-allow-headers"] == "authorization,content-type"
    for other in ("https://evil.example.com", "null", PAGE + ".evil.com", "http://portal.example.com"):
        reply = cluster.get("/api/v2/jobs?limit=1", headers={"Origin": other})
        assert "access-control-allow-origin" not in reply.headers


def test_paddleclouds_clients_are_told_in_their_own_words_that_they_are_too_early(team: TeamCluster) -> None:
    for method, path, headers in (
        ("GET", "/api/v1/jobs/", {"Authorization": "Token 0123"}),
        ("POST", "/api-token-auth/", {}),
        ("GET", "/api/v1/quota/", {}),
        ("GET", "/api/v1/pfs/files", {"Authorization": "Token 0123"}),
    ):
        reply = team.ask(method, path, headers=headers, token=None)
        assert reply.status == 501
        said = reply.json()
        assert said["code"] == 501
        assert "PaddleCloud" in said["msg"]
    assert (
        team.ask("PROPFIND", "/api/v1/jobs", headers={"Authorization": "Token 1"}, token=None).status == 501
    )
    sent = {"name": "x", "jobPackage": "./x", "parallelism": 1}
    assert team.ask("POST", "/api/v1/jobs", sent).status == 501
    # The body that was looked at reaches the route it was for.
    refused = team.ask("POST", "/api/v1/jobs", {"jobName": "x"})
    assert (refused.status, refused.json()["code"]) != (501, 501)
    assert "taskRoles" in refused.text or "image" in refused.text
