"""The same tests on each engine: as processes, in a container whose image has Python only, and on Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.container_images import WITH_PYTHON, make
from support.external_services import install_podman
from support.python_session import BIN, DROPPED, here_fixture, server_fixture, whose_fixture  # noqa: F401
from support.slurm_cluster import RealSlurm
from support.slurm_jobs import SETTINGS


@pytest.fixture(
    name="here",
    params=[
        "process",
        pytest.param(
            "container", marks=[pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("image-jobs")]
        ),
        pytest.param(
            "slurm", marks=[pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm-user")]
        ),
    ],
)
def here_on_each_engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty current folder, and a cluster whose jobs run with one of the engines."""
    home = request.getfixturevalue("slurm_home" if request.param == "slurm" else "whose")
    folder = enter(home, tmp_path, monkeypatch)
    if request.param == "container":
        request.getfixturevalue("python_image")
        (folder / ".openpai").mkdir()
        (folder / ".openpai/defaults.yaml").write_text(f"image: {WITH_PYTHON}\n")
    if request.param == "slurm":
        (folder / ".openpai").mkdir()
        (folder / ".openpai/defaults.yaml").write_text("virtual-cluster: slurm\n")
    return folder


@pytest.fixture
def here_on_host(whose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for tests whose functions share this folder."""
    return enter(whose, tmp_path, monkeypatch)


def enter(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(home))
    for name in DROPPED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("openpaisdk.functions.function_cluster._clusters", {})
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def python_image() -> None:
    install_podman()
    make("podman", WITH_PYTHON)


@pytest.fixture(scope="session")
def slurm_home(slurm: RealSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user whose embedded cluster runs jobs on a Slurm with several nodes."""
    home = tmp_path_factory.mktemp("over-slurm")
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    env = {**kept, "HOME": str(home), "SLURM_CONF": str(slurm.conf)}

    def pai(*words: str) -> None:
        subprocess.run([BIN / "pai", *words], env=env, check=True, capture_output=True, cwd=home)

    # The first start creates the folder of the cluster, where its settings belong.
    pai("start-cluster")
    pai("stop-cluster", "--now")
    (cluster,) = (home / ".openpai/local").iterdir()
    (cluster / "cluster.yaml").write_text(SETTINGS.format(shared=home / "shared"))
    pai("start-cluster")
    yield home
    pai("stop-cluster", "--now")
