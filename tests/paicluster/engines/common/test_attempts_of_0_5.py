"""Folders of tasks that version 0.5 started, observed by the present one: tasks outlive the server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.common import attempt_folder
from paicluster.engines.interface import Observation, Phase
from paicluster.logs.reader import LogReader
from pairuntime.supervisor import claim
from support.paths import FILES_OF_0_5

# A supervisor of any version holds its claim by a lock of its process.
HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); "
    "sys.stdin.read()"
)
UID = "f5ad6798-3376-45b7-97c4-ee1aa68d362f"
CLAIMED_MS = 1794998788552


@pytest.fixture
def running(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES_OF_0_5 / "attempts/running", tmp_path / "running"))


@pytest.fixture
def supervisor(running: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the claim."""
    command = [sys.executable, "-S", "-c", HOLD, str(running / claim.NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "\n"
        yield process


def test_running_task_is_observed(running: Path, supervisor: subprocess.Popen[str]) -> None:
    assert attempt_folder.observe(running) == Observation(Phase.RUNNING, started_ms=CLAIMED_MS)
    assert attempt_folder.is_complete(running, "any boot")
    cgroup = attempt_folder.cgroup_of(running)
    assert cgroup is not None and cgroup.mode == "v2" and cgroup.path.endswith("/pai-7c6fa7a51cfe/" + UID)
    assert LogReader(running, "all").read(0, 100).data == b"begun\n"


def test_task_whose_supervisor_died_is_lost(running: Path, supervisor: subprocess.Popen[str]) -> None:
    supervisor.communicate("")
    assert attempt_folder.observe(running) == Observation(Phase.LOST, started_ms=CLAIMED_MS)


def test_finished_task_is_observed() -> None:
    observed = attempt_folder.observe(FILES_OF_0_5 / "attempts/finished")
    assert observed == Observation(Phase.ENDED, started_ms=1794998753014, ended_ms=1794998753780, exit_code=1)
    log = LogReader(FILES_OF_0_5 / "attempts/finished", "stderr").last(40)
    assert log.endswith(b"There is no file missing.yaml.\n")
