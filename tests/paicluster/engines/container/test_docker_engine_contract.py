"""The container engine keeps the contract by docker, with a daemon of the tests' own."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.common.image_rejection import ImageRejected
from paicluster.engines.container import gpu_options
from paicluster.engines.container.client import Client, own_environment
from paicluster.engines.container.images import Images
from paicluster.engines.interface import LaunchFailed
from support.container_images import PLAIN
from support.container_rig import ContainerRig
from support.docker_and_registry import dockerd
from support.engine_contract import EngineContract

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture(scope="module")
def docker_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dockerd(tmp_path_factory.mktemp("dockerd")) as address:
        yield address


@pytest.fixture
def rig(tmp_path: Path, docker_host: str) -> Iterator[ContainerRig]:
    made = ContainerRig(tmp_path, "docker", {"DOCKER_HOST": docker_host})
    yield made
    made.close()


class TestDocker(EngineContract):
    pass


def test_docker_accepts_the_gpu_option(rig: ContainerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it has any it finds out only when it starts the container."""
    monkeypatch.setattr(gpu_options, "_has_docker_hook", lambda: True)
    arguments, by_hand = gpu_options.gpu_options(Client("docker", "docker"), [1, 3])
    assert not by_hand
    name = f"pai-gpus-{uuid.uuid4().hex[:12]}"
    docker("create", "--name", name, *arguments, PLAIN, "true")
    try:
        asked = json.loads(docker("inspect", "--format", "{{json .HostConfig.DeviceRequests}}", name))
    finally:
        docker("rm", name)
    assert [one["DeviceIDs"] for one in asked] == [["1", "3"]]


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


async def test_client_failure_is_not_taken_for_a_missing_image(docker_host: str, tmp_path: Path) -> None:
    nowhere = {**own_environment(), "DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    images = Images(Client("docker", "docker", environment=nowhere), tmp_path)
    with pytest.raises(LaunchFailed, match=r"docker could not check whether .*: .*nobody\.sock") as raised:
        await images.ensure_image("localhost/pai-test/any:1", None, ["any"], lambda notice: None)
    assert not isinstance(raised.value, ImageRejected)
