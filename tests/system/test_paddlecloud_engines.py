"""Jobs of PaddleCloud with parameter servers, in containers and on a real Slurm: tasks find each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.cli_user import CliUser, new_user_fixture  # noqa: F401
from support.container_images import WITH_PYTHON, make
from support.external_services import install_podman
from support.paths import REPOSITORY
from support.slurm_cluster import RealSlurm

pytestmark = [pytest.mark.service, pytest.mark.slow]

# Slurm is the engine of the only virtual cluster, as `paicluster init` writes it on a Slurm.
SLURM = "engines:\n- {{type: slurm, folder: {shared}, file-lag: 0.5, interval: 0.5}}\n"


def train(user: CliUser, name: str, count: int, *options: str) -> None:
    """Train with so many trainers and as many parameter servers, to the end of all of them."""
    shutil.copytree(REPOSITORY / "examples/paddlecloud/linear", user.project / name)
    words = ["paddlecloud", "submit", f"./{name}", "-jobname", name, "-p", str(count)]
    sizes = ["-memory", "128Mi", "-psmemory", "128Mi", "-entry", "python3 train.py"]
    submitted = user.run([*words, *sizes, *options])
    assert submitted.status == 0, submitted
    waited = user.pai("wait", "--timeout", "100", name)
    log = user.run(["paddlecloud", "logs", "-n", "100", name])
    assert waited.status == 0, (waited, log.out, user.pai("job-status", name, "events").out)
    assert "y = 3.00 x + 2.00" in log.out, log.out
    rows = [line.split() for line in user.run(["paddlecloud", "get", "workers", name]).out.splitlines()[1:]]
    states = {row[0]: row[1] for row in rows}
    trainers = [f"{name}-trainer-{index}" for index in range(count)]
    assert [states[trainer] for trainer in trainers] == ["Succeeded"] * count
    servers = [states[f"{name}-pserver-{index}"] for index in range(count)]
    assert not {"Running", "Pending"} & set(servers), "parameter servers outlive the trainers"


@pytest.mark.xdist_group("image-jobs")
def test_in_containers(new_user: CliUser) -> None:
    install_podman()
    make("podman", WITH_PYTHON)
    train(new_user, "boxed", 1, "-image", WITH_PYTHON)


@pytest.fixture
def slurm_user(new_user: CliUser, slurm: RealSlurm) -> Iterator[CliUser]:
    """A user whose embedded cluster runs every job on a Slurm with several nodes."""
    # The first start creates the folder of the cluster, where its settings belong.
    for words in (["start-cluster"], ["stop-cluster", "--now"]):
        assert new_user.pai(*words).status == 0
    settings = SLURM.format(shared=new_user.home / "shared")
    (new_user.cluster_home / "cluster.yaml").write_text(settings)
    yield new_user
    new_user.pai("stop-cluster", "--now")


@pytest.mark.xdist_group("slurm-user")
def test_on_slurm(slurm_user: CliUser) -> None:
    train(slurm_user, "over-slurm", 2)
