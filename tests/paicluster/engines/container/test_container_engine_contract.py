"""The container engine keeps the contract by podman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.container_rig import ContainerRig
from support.engine_contract import EngineContract

pytestmark = pytest.mark.service


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ContainerRig]:
    made = ContainerRig(tmp_path, "podman")
    yield made
    made.close()


class TestPodman(EngineContract):
    pass
