"""The engine contract for the process engine, with every mechanism for process trees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairuntime.supervisor import process_tree
from support.engine_contract import EngineContract
from support.process_rig import ProcessRig


# Machines of today have V2; PROC needs no permission.
@pytest.fixture(
    params=[process_tree.V2, pytest.param(process_tree.V1, marks=pytest.mark.slow), process_tree.PROC]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessRig]:
    made = ProcessRig(tmp_path / "home", request.param)
    yield made
    made.close()


class TestProcessEngine(EngineContract):
    pass
