"""Jobs without an image on clusters that run every job in a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpaisdk import Cluster, Job
from paiprotocol.errors import UsageError
from support.http_peer import Peer
from support.recorded_openpai import USER, V18
from support.team_cluster import NewTeam, TeamCluster, new_team_fixture  # noqa: F401


def without_image(name: str) -> Job:
    return Job(name).one_liner("true", sources=[])


def connect(team: TeamCluster) -> Cluster:
    host, port = team.address
    return Cluster("team", f"http://{host}:{port}", team.user, token=team.token)


def refusal(cluster: Cluster) -> UsageError:
    with pytest.raises(UsageError, match="The cluster team runs jobs in containers: name an image") as raised:
        without_image("refused").submit(cluster)
    assert "pai set -g image=<image>" in raised.value.hint
    return raised.value


def test_host_is_offered_where_jobs_may_run_on_it(new_team: NewTeam, tmp_path: Path) -> None:
    # The server asks only whether the program is there before a job needs it.
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text("#!/bin/sh\nexit 1\n")
    podman.chmod(0o755)
    team = new_team(
        "engine:\n  type: container\n  program: podman\n",
        variables={"PATH": f"{podman.parent}:{os.environ['PATH']}"},
    )
    assert "-i host" in refusal(connect(team)).hint


def test_host_is_not_offered_by_the_server_of_openpai() -> None:
    server = V18()
    cluster = Cluster("team", Peer(server).uri, USER, token=server.token)
    assert "-i host" not in refusal(cluster).hint
    assert not server.submitted


def test_cluster_without_containers_needs_no_image(new_team: NewTeam) -> None:
    job = without_image("plain").submit(connect(new_team()))
    assert job.wait() == "SUCCEEDED"
