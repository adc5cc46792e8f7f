"""A short chaos campaign with a fixed seed; longer ones, also of the other engines, are `make chaos`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.paths import TESTS

_SEED = 37
_FAULTS_S = 60.0
# With the start, the end of the load and the checks about 90 s; on a busy machine much longer.
_DEADLINE_S = 900.0


@pytest.mark.slow(90)
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, which needs root")
def test_cluster_keeps_its_promises_under_a_minute_of_faults() -> None:
    # A process of its own: the campaign changes its home and its current folder.
    command = (sys.executable, "-m", "chaos", "--seed", str(_SEED), "--seconds", str(_FAULTS_S))
    ran = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"green: seed {_SEED}" in ran.stderr
