"""``pai quota`` on a team's cluster and on the embedded one."""

from __future__ import annotations

import json

import pytest

from support.cli_user import CliUser
from support.team_cluster import PASSWORD, TeamCluster, module_team  # noqa: F401


@pytest.fixture
def alice(team: TeamCluster, tmp_path) -> CliUser:
    user = CliUser(tmp_path)
    host, port = team.address
    words = ["--pai-uri", f"http://{host}:{port}", "--user", "alice", "--password", PASSWORD]
    added = user.pai("add-cluster", "-a", "team", *words)
    assert added.status == 0, added
    return user


def test_quota_shows_what_is_used_of_each_limit(alice: CliUser, team: TeamCluster) -> None:
    limits = {"tasks": 4, "storageBytes": 20 << 30}
    for where, sent in (("users/alice", limits), ("groups/default", {"gpu": 2})):
        assert team.ask("PUT", f"/api/v2/{where}/quota", sent, token=team.tokens["admin"]).status == 201
    shown = alice.pai("quota", "-a", "team")
    assert shown.status == 0, shown
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0] == ["QUOTA", "OF", "RESOURCE", "USED", "LIMIT"]
    assert ["user", "alice", "running", "tasks", "0", "4"] in lines
    assert ["user", "alice", "cores", "0", "-"] in lines
    assert any(line[:3] == ["user", "alice", "storage"] and line[-2:] == ["20", "GB"] for line in lines)
    assert ["group", "default", "GPUs", "0", "2"] in lines
    found = json.loads(alice.pai("quota", "-a", "team", "-o", "json").out)
    assert found[0]["resources"]["tasks"] == {"used": 0, "limit": 4}
    refused = alice.pai("sub", "-a", "team", "--no-sources", "--cpu", "1", "--instances", "5", "true")
    assert refused.status == 1
    assert "asks for 5 tasks; the quota is 4 tasks." in refused.err


def test_quota_of_the_embedded_cluster_has_no_limits(user: CliUser) -> None:
    shown = user.pai("quota")
    assert shown.status == 0, shown
    assert all(line.endswith(" -") for line in shown.out.splitlines()[1:]), shown.out
