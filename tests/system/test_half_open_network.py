"""A network that swallows packets without an error: commands notice it, and go on when it is back."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import CliUser
from support.half_open_network import HalfOpenNetwork
from support.server_fixture import eventually, job
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

pytestmark = pytest.mark.slow
NOTICED_WITHIN_S = 30.0
FOLLOWER_NOTICES_WITHIN_S = 15.0
# A loaded machine schedules a process late; the network's own times do not depend on it.
SCHEDULING_MARGIN_S = 15.0


class FarUser(CliUser):
    """User whose machine reaches the cluster through the router."""

    def __init__(self, folder: Path, network: HalfOpenNetwork):
        super().__init__(folder)
        self.network = network

    def begin(self, *words: str, **more: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.network.inside("pai", *words),
            cwd=self.project,
            env=self.env(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,  # type: ignore[call-overload]
        )


@pytest.fixture
def far_cluster(half_open_network: HalfOpenNetwork, tmp_path: Path) -> Iterator[TeamCluster]:
    home = tmp_path / "cluster" / "home"
    add_users(home)
    cluster = TeamCluster(home, (*MACHINE, "--host", half_open_network.server_address, "--allow-plain-http"))
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        half_open_network.restore()
        cluster.close()


@pytest.fixture
def far_user(half_open_network: HalfOpenNetwork, far_cluster: TeamCluster, tmp_path: Path) -> FarUser:
    user = FarUser(tmp_path / "far", half_open_network)
    host, port = far_cluster.address
    added = user.pai(
        *("add-cluster", "-a", "far", "--pai-uri", f"http://{host}:{port}"),
        *("--user", "alice", "--token", far_cluster.token),
    )
    assert added.status == 0, added
    return user


def arrived_bytes(cluster: TeamCluster) -> int:
    """Bytes of unfinished uploads that are on the server's disk."""
    partial = cluster.home / "storage/.pai/partial"
    return sum(each.stat().st_blocks * 512 for each in partial.glob("*")) if partial.exists() else 0


def finish_within(process: subprocess.Popen[str], limit_s: float) -> tuple[float, str, str]:
    """How long a command took to end, and what it printed."""
    began = time.monotonic()
    out, err = process.communicate(timeout=limit_s * 3)
    return time.monotonic() - began, out, err


def test_interrupted_upload_is_noticed_within_seconds(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork
) -> None:
    half_open_network.limit_rate(10_000)
    (far_user.project / "f").write_bytes(os.urandom(48 << 20))
    process = far_user.begin("copy", "--http", "f", "pai://far/0/user/alice/f")
    eventually(lambda: arrived_bytes(far_cluster) > 1 << 20, "the start of the upload")
    half_open_network.swallow_packets()
    took, out, err = finish_within(process, NOTICED_WITHIN_S)
    assert process.returncode != 0, out
    assert took < NOTICED_WITHIN_S + SCHEDULING_MARGIN_S, err
    assert "does not respond" in err
    assert "Run the same command again: it resumes the copy." in err

    half_open_network.restore()
    half_open_network.lift_rate()
    again = far_user.begin("copy", "--http", "f", "pai://far/0/user/alice/f")
    _, _, err = finish_within(again, 120)
    assert again.returncode == 0, err
    assert (far_cluster.home / "storage/user/alice/f").read_bytes() == (far_user.project / "f").read_bytes()


def test_interrupted_download_is_noticed_within_seconds(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork
) -> None:
    (far_user.project / "f").write_bytes(os.urandom(64 << 20))
    assert far_user.pai("copy", "f", "pai://far/0/user/alice/f").status == 0
    (far_user.project / "f").unlink()
    half_open_network.limit_rate(1_000)  # the acknowledgements, and with them the answers, become slow
    process = far_user.begin("copy", "--http", "pai://far/0/user/alice/f", "back")
    eventually(lambda: list(far_user.project.glob("*.pai-part")), "the start of the download")
    half_open_network.swallow_packets()
    took, out, err = finish_within(process, NOTICED_WITHIN_S)
    assert process.returncode != 0, out
    assert took < NOTICED_WITHIN_S + SCHEDULING_MARGIN_S, err
    assert "Run the same command again: it resumes the copy." in err


def test_short_interruption_does_not_end_a_copy(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork
) -> None:
    half_open_network.limit_rate(20_000)
    (far_user.project / "f").write_bytes(os.urandom(16 << 20))
    process = far_user.begin("copy", "--http", "f", "pai://far/0/user/alice/f")
    eventually(lambda: arrived_bytes(far_cluster) > 1 << 20, "the start of the upload")
    half_open_network.swallow_packets()
    threading.Timer(6.0, half_open_network.restore).start()
    _, _, err = finish_within(process, 120)
    assert process.returncode == 0, err


def test_slow_network_does_not_end_a_copy(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork
) -> None:
    """Packets are queued for longer than a dead peer is waited for, but they arrive."""
    half_open_network.limit_rate(400)
    (far_user.project / "f").write_bytes(os.urandom(1 << 20))
    process = far_user.begin("copy", "--http", "f", "pai://far/0/user/alice/f")
    took, _, err = finish_within(process, 120)
    assert process.returncode == 0, err
    assert took > 15, "the link was not slow enough for this test"


def test_follower_notices_a_dead_network_in_15_seconds_and_misses_nothing(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    far_cluster.accept(job("quiet", f"echo one; until [ -e {gate} ]; do sleep 0.1; done; echo two"))
    far_cluster.wait_state("quiet", "RUNNING")
    process = far_user.begin("logs", "-a", "far", "quiet", "--follow")
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "one\n"
    half_open_network.swallow_packets()
    began = time.monotonic()
    line = process.stderr.readline()
    assert time.monotonic() - began < FOLLOWER_NOTICES_WITHIN_S + SCHEDULING_MARGIN_S
    assert "connection" in line.lower(), line
    gate.touch()
    half_open_network.restore()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "two\n"), err


def test_command_without_an_answer_ends_in_seconds(
    far_user: FarUser, far_cluster: TeamCluster, half_open_network: HalfOpenNetwork
) -> None:
    half_open_network.swallow_packets()
    process = far_user.begin("list-jobs", "-a", "far")
    took, _, err = finish_within(process, NOTICED_WITHIN_S)
    assert process.returncode != 0
    assert took < NOTICED_WITHIN_S + SCHEDULING_MARGIN_S, err
    assert "does not respond" in err
