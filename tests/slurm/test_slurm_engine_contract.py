"""The Slurm engine keeps the contract, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract import EngineContract
from driving import Driven
from real_slurm import RealSlurm
from slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture
def rig(slurm: RealSlurm, tmp_path: Path) -> Iterator[SlurmRig]:
    made = SlurmRig(slurm, tmp_path / "shared")
    yield made
    made.close()


class TestSlurmEngine(EngineContract):
    async def test_ports_in_use_are_not_free(self, rig: SlurmRig) -> None:  # type: ignore[override]
        """Nobody can tell before it is known where a task runs: the tasks find free ones themselves."""
        async with Driven(rig) as driven:
            assert driven.engine.ports_free(rig.node, [80], lasting=False)
