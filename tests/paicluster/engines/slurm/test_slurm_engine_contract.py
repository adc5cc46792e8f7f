"""Engine contract of the Slurm engine, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.container.client import Client
from support.engine_contract import EngineContract
from support.engine_rig import Driven
from support.ports import free_ports
from support.slurm_cluster import RealSlurm
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]

# Each long enough to keep a worker busy.
KINDS = ("shared", "reported")


class TestSlurmEngine(EngineContract):
    @pytest.fixture(
        params=[pytest.param(kind, marks=pytest.mark.xdist_group(f"slurm-{kind}")) for kind in KINDS]
    )
    def rig(
        self, request: pytest.FixtureRequest, slurm: RealSlurm, podman: Client, tmp_path: Path
    ) -> Iterator[SlurmRig]:
        """Once with a shared folder, once with tasks that report over HTTP."""
        made = SlurmRig(slurm, tmp_path / "home", podman)
        if request.param == "reported":
            made.port = free_ports(1)[0]
        yield made
        made.close()

    async def test_ports_in_use_are_not_free(self, rig: SlurmRig) -> None:  # type: ignore[override]
        """Not applicable: tasks choose free ports themselves on their node."""
        async with Driven(rig) as driven:
            assert driven.engine.ports_free(rig.node, [80], non_ephemeral=False)
