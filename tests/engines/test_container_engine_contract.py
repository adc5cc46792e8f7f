"""The container engine keeps the contract by podman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from container_rig import ContainerRig
from contract import EngineContract

from outside import debian

pytestmark = pytest.mark.service

PODMAN = ["podman", "runc", "netavark", "slirp4netns", "uidmap", "busybox-static"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ContainerRig]:
    debian(PODMAN, commands=["podman", "runc", "busybox"])
    made = ContainerRig(tmp_path, "podman")
    yield made
    made.close()


class TestPodman(EngineContract):
    pass
