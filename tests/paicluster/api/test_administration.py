"""Settings and audit log, as administrators see them."""

from __future__ import annotations

from support.server_fixture import eventually
from support.team_cluster import NewTeam, TeamCluster


def test_audit_log_is_searched_from_its_end(team: TeamCluster) -> None:
    admin = team.tokens["admin"]
    for name in ("first_group", "second_group"):
        assert team.ask("POST", "/api/v2/groups", {"groupname": name}, token=admin).status == 201

    def entries(query: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = team.get(f"/api/v2/audit?{query}", token=admin).json()["entries"]
        return found

    # The log is written in the background.
    eventually(lambda: entries("keyword=SECOND_group"), "the entry")
    assert [one["about"] for one in entries("keyword=_group")] == ["second_group", "first_group"]
    newest = entries("keyword=_group&limit=1")[0]
    assert (newest["user"], newest["method"], newest["path"], newest["status"]) == (
        "admin",
        "POST",
        "/api/v2/groups",
        201,
    )
    assert team.get("/api/v2/audit?limit=-1", token=admin).status == 400


def test_settings_are_shown_to_administrators_only(new_team: NewTeam) -> None:
    team = new_team("listen: {app-ports: 9400-9410}\nlimits: {body-mb: 3}\n")
    shown = team.get("/api/v2/settings", token=team.tokens["admin"]).json()["settings"]
    assert shown["app-ports"] == "9400-9410" and shown["limits"]["body-mb"] == 3
    assert shown["home"] == str(team.home) and shown["cpus"] == 64
    assert team.get("/api/v2/settings").status == 403
    assert team.get("/api/v2/audit").status == 403
