"""Security headers and CORS; PaddleCloud requests get a response in their format."""

from __future__ import annotations

from collections.abc import Callable

from support.team_cluster import TeamCluster

NewTeam = Callable[..., TeamCluster]
PAGE = "https://portal.example.com"


def test_every_response_has_security_headers(team: TeamCluster) -> None:
    for path in ("/api/v2/info", "/api/v2/jobs", "/nowhere", "/healthz", "/api/v1/quota", "/openapi.json"):
        reply = team.get(path)
        assert reply.headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in reply.headers["content-security-policy"], path
        assert reply.headers["cache-control"] == "no-store", path
        assert reply.headers["referrer-policy"] == "no-referrer", path
        assert "server" not in reply.headers
        assert "strict-transport-security" not in reply.headers


def test_cors_is_off_by_default(team: TeamCluster) -> None:
    for method in ("GET", "OPTIONS"):
        reply = team.ask(method, "/api/v2/info", headers={"Origin": PAGE})
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_cors_allows_only_configured_origins(new_team: NewTeam) -> None:
    cluster = new_team(f"listen: {{cors-origins: ['{PAGE}']}}\n")
    reply = cluster.get("/api/v2/jobs?limit=1", headers={"Origin": PAGE})
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-credentials" not in reply.headers
    assert reply.headers["vary"] == "Origin"
    preflight = {"Origin": PAGE, "Access-Control-Request-Method": "PUT"}
    preflight["Access-Control-Request-Headers"] = "authorization,content-type"
    response = cluster.ask("OPTIONS", "/api/v2/jobs", headers=preflight, token=None)
    assert response.status == 204
    assert "PUT" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "authorization,content-type"
    for other in ("https://evil.example.com", "null", PAGE + ".evil.com", "http://portal.example.com"):
        reply = cluster.get("/api/v2/jobs?limit=1", headers={"Origin": other})
        assert "access-control-allow-origin" not in reply.headers


def test_paddlecloud_requests_get_responses_in_their_format(team: TeamCluster) -> None:
    for method, path, headers, status in (
        ("GET", "/api/v1/jobs/", {"Authorization": "Token 0123"}, 401),
        ("GET", "/api/v1/quota/", {}, 401),
        ("PROPFIND", "/api/v1/jobs", {"Authorization": "Token 1"}, 405),
    ):
        reply = team.ask(method, path, headers=headers, token=None)
        assert (reply.status, reply.json()["code"]) == (status, status)
        assert reply.json()["msg"]
        assert ("allow" in reply.headers) == (status == 405)
    # The body that the dialect check read still reaches its route.
    sent = {"name": "x", "jobPackage": "./x", "parallelism": -1}
    assert "parallelism must be" in team.ask("POST", "/api/v1/jobs", sent).json()["msg"]
    refused = team.ask("POST", "/api/v1/jobs", {"jobName": "x"})
    assert "taskRoles" in refused.text or "image" in refused.text
