"""The container engine keeps the contract by docker, with a daemon of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from container_rig import ContainerRig
from contract import EngineContract

from daemons import dockerd

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
