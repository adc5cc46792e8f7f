"""Commands list only the virtual clusters that the user may use."""

import json

import pytest

from support.cli_user import CliUser
from support.team_cluster import PASSWORD, TeamCluster, add_users


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A cluster whose virtual cluster `lab` alice may not use."""
    home = tmp_path_factory.mktemp("team") / "home"
    add_users(home)
    machine = ("--allow-shared-account", "--cpus", "8", "--memory-mb", "8000", "--gpus", "0")
    cluster = TeamCluster(home, (*machine, "--virtual-cluster", "lab=0,4,4000"))
    try:
        cluster.start()
        cluster.tokens = {"admin": cluster.log_in("admin")}
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize(("name", "usable"), [("alice", ["default"]), ("admin", ["default", "lab"])])
def test_only_usable_virtual_clusters_are_listed(team: TeamCluster, tmp_path, name: str, usable: list[str]):
    user = CliUser(tmp_path)
    host, port = team.address
    words = ["--pai-uri", f"http://{host}:{port}", "--user", name, "--password", PASSWORD]
    added = user.pai("add-cluster", "-a", "team", *words)
    assert added.status == 0, added
    (entry,) = json.loads(user.pai("list-clusters", "-o", "json").out)
    assert entry["virtual_clusters"] == usable
    rows = json.loads(user.pai("cluster-resources", "-a", "team", "-o", "json").out)
    assert [row["virtualCluster"] for row in rows] == usable
    doctor = user.pai("doctor")
    assert f"virtual clusters {', '.join(usable)}\n" in doctor.out + doctor.err, doctor
    unknown = user.pai("sub", "-a", "team", "--no-sources", "--vc", "nowhere", "true")
    assert unknown.status == 1 and "There is no virtual cluster nowhere." in unknown.err, unknown
    assert f"Virtual clusters you may use: {', '.join(usable)}." in unknown.err
