"""Settings and audit log, as administrators see them."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_requests_that_only_read_are_not_in_the_audit_log(team: TeamCluster) -> None:
    checked = team.ask("POST", "/api/v2/job-checks", b"name: x", {"Content-Type": "text/yaml"})
    assert checked.status == 200
    fetched = team.ask("POST", "/api/v2/transfer/fetch", {"path": "/", "names": []})
    assert fetched.status == 200, fetched.text
    admin = team.tokens["admin"]
    assert team.ask("POST", "/api/v2/groups", {"groupname": "after_reads"}, token=admin).status == 201
    log = team.home / "audit.log"
    eventually(lambda: "after_reads" in log.read_text(), "the entry")
    assert "job-checks" not in log.read_text() and "/fetch" not in log.read_text()


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/" + "x" * 9000])
def test_fetch_of_an_invalid_path_is_an_error(team: TeamCluster, path: str) -> None:
    """No response that begins as a success and breaks off."""
    reply = team.ask("POST", "/api/v2/transfer/fetch", {"path": path, "names": ["f"]})
    assert (reply.status, reply.json()["code"]) == (400, "InvalidPathError"), reply.text


def test_settings_are_shown_to_administrators_only(new_team: NewTeam) -> None:
    team = new_team("listen: {app-ports: 9400-9410}\nlimits: {body-mb: 3}\n")
    shown = team.get("/api/v2/settings", token=team.tokens["admin"]).json()["settings"]
    assert shown["app-ports"] == "9400-9410" and shown["limits"]["body-mb"] == 3
    assert shown["home"] == str(team.home) and shown["cpus"] == 64
    assert team.get("/api/v2/settings").status == 403
    assert team.get("/api/v2/audit").status == 403


def test_storage_with_unreadable_credentials_hides_no_other(new_team: NewTeam, tmp_path: Path) -> None:
    credentials = tmp_path / "s3.yaml"
    credentials.write_text("access-key-id: a\nsecret-access-key: b\n")
    credentials.chmod(0o600)
    storages = "[{name: home, type: own}, {name: sets, type: s3, bucket: b, credentials: s3.yaml}]"
    team = new_team(f"storages: {storages}\n")
    credentials.unlink()
    reply = team.get("/api/v2/storage/server", token=team.tokens["admin"])
    assert reply.status == 200, reply.text
    assert [server["spn"] for server in reply.json()] == ["home"]
