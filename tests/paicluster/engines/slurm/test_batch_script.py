"""Batch script of a single task, under any Python version that nodes may have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from paicluster.engines.interface import Placeholders, TaskLaunch
from paicluster.engines.slurm import gang_folder, runtime_archive
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.reports import usage_file
from pairuntime.supervisor import exit_record
from support import fake_nvml


def _works(python: str) -> bool:
    """A real Python, not a shim without a version behind it."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


_OTHERS = sorted(
    path
    for version in ("3.6", "3.8", "3.13")
    for path in map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))
) or [found for name in ("python3.9", "python3.13") if (found := shutil.which(name)) and _works(found)]


_SCRIPT = "[ $PORT -gt 1023 ]; echo out; echo err >&2; exit 7"


def _run(
    home: Path,
    python: str,
    *,
    spoil: str = "",
    script: str = _SCRIPT,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Path, str]:
    """Exit status of the script, the attempt's folder, and its output."""
    options = SlurmOptions(folder=home, python=python)
    archive = runtime_archive.install(home / "runtime")
    if spoil:
        archive.with_name(spoil).write_bytes(b"nothing of use")
    (home / "events").mkdir()
    task = TaskLaunch(
        uid="ab12",
        node="",
        script=script,
        environment={"PORT": "%pai.0.0.0%"},
        placeholders=Placeholders("%pai.0.ip%", {"http": ("%pai.0.0.0%",)}, "%pai.0.gpus%"),
    )
    usual: dict[str, object] = {"events": str(home / "events")}
    gang_folder.prepare(gang_folder.SlurmFolders(home), [task], options, archive, usual, ["sbatch"], None)
    done = subprocess.run(
        ["/bin/sh", str(gang_folder.SlurmFolders(home).gang("ab12") / "batch.sh")],
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "5", "SLURMD_NODENAME": "n1", **variables},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return done.returncode, gang_folder.SlurmFolders(home).task("ab12"), done.stderr


def _notes(home: Path) -> list[str]:
    return sorted(note.name for note in (home / "events").iterdir())


def _ran(path: Path) -> None:
    assert json.loads((path / exit_record.NAME).read_text())["exit_code"] == 7
    assert (path / "stdout.0").read_text() == "out\n"
    assert (path / "stderr.0").read_text() == "err\n"
    assert "ab12.ended" in _notes(path.parents[2])
    place = json.loads((path / "placement.json").read_text())
    assert place["node"] == "n1" and place["ip"].count(".") == 3


def test_same_python_uses_only_the_preload_code(tmp_path: Path) -> None:
    status, path, said = _run(
        tmp_path, sys.executable, spoil=runtime_archive.install(tmp_path / "runtime").name
    )
    assert (status, said) == (0, "")
    _ran(path)


def test_without_preload_code_the_archive_is_used(tmp_path: Path) -> None:
    status, path, said = _run(tmp_path, sys.executable, spoil=runtime_archive.PRELOAD)
    assert (status, said) == (0, "")
    _ran(path)


@pytest.mark.skipif(not _OTHERS, reason="no other Python here")
@pytest.mark.parametrize("python", _OTHERS)
def test_other_python_versions_use_the_archive(tmp_path: Path, python: str) -> None:
    status, path, said = _run(tmp_path, python)
    assert (status, said) == (0, "")
    _ran(path)


def test_preload_code_contains_all_modules_of_a_single_task() -> None:
    """A module missing in the list would be imported from the archive, for each task."""
    program = (
        "import sys; from pairuntime.slurm import gang_launcher, slurm_attempt;"
        "print(*sorted(name for name in sys.modules if name.startswith('pairuntime')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(runtime_archive.SINGLE_TASK_MODULES)


def test_brief_task_sends_only_its_end_event(tmp_path: Path) -> None:
    home, archive = gang_folder.SlurmFolders(tmp_path), runtime_archive.install(tmp_path / "runtime")
    home.events.mkdir()
    task = TaskLaunch(uid="ab12", node="", script="true", environment={})
    gang_folder.prepare(
        home, [task], SlurmOptions(folder=tmp_path), archive, {"events": str(home.events)}, [], None
    )
    # Independent of the machine's speed.
    program = (
        "import sys; from pairuntime.slurm import slurm_attempt as a, gang_launcher;"
        "a._START_EVENT_DELAY_S = 60; gang_launcher.run(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, str(home.gang("ab12"))], check=True, timeout=90)
    assert _notes(tmp_path) == ["ab12.ended"]


def test_longer_task_sends_a_start_event(tmp_path: Path) -> None:
    started = tmp_path / "events" / "ab12.started"
    status, _, said = _run(
        tmp_path, sys.executable, script=f"until [ -e {started} ]; do /bin/sleep 0.01; done"
    )
    assert (status, said) == (0, "")
    assert _notes(tmp_path) == ["ab12.ended", "ab12.started"]


def test_placement_imports_no_large_modules(tmp_path: Path) -> None:
    """The Python parts of these modules take longer to import than Python to start."""
    (tmp_path / "events").mkdir()
    archive = runtime_archive.install(tmp_path / "runtime")
    home, options = gang_folder.SlurmFolders(tmp_path), SlurmOptions(folder=tmp_path)
    task = TaskLaunch(
        uid="ab12",
        node="",
        script=f"echo $PORT $WHERE > {tmp_path}/values",
        environment={"PATH": "/usr/bin:/bin", "PORT": "%pai.0.0.0%", "WHERE": "%pai.0.ip%"},
        placeholders=Placeholders("%pai.0.ip%", {"http": ("%pai.0.0.0%",)}, "%pai.0.gpus%"),
    )
    gang_folder.prepare(home, [task], options, archive, {"events": str(home.events)}, [], None)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *runtime_archive.loader(archive, home.gang("ab12"))],
        env={"SLURM_JOB_ID": "5", "SLURMD_NODENAME": "localhost"},
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    port, where = (tmp_path / "values").read_text().split()
    assert 0 < int(port) < 65536 and where.startswith("127.")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "os" in loaded
    assert not loaded & {"socket", "selectors", "enum", "collections", "re", "json", "struct", "signal"}


def _reports(home: Path, python: str, wanted: str, variables: dict[str, str]) -> Any:
    """The usage that a task reports, once it contains a text."""
    # The timer's signal makes the supervisor report; the test need not wait for the timer.
    script = f"until grep -qF '{wanted}' ../usage.json; do kill -ALRM $PPID; sleep 0.05; done"
    status, path, said = _run(home, python, script=f"PATH=/usr/bin:/bin; {script}", variables=variables)
    assert (status, said) == (0, "")
    assert json.loads((path / exit_record.NAME).read_text())["exit_code"] == 0
    return json.loads((path / usage_file.NAME).read_text())


@pytest.mark.parametrize("python", [sys.executable, *_OTHERS])
@pytest.mark.parametrize(
    ("variables", "numbers"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,2", "SLURM_JOB_GPUS": "4,6"}, [0, 2]),
        # The numbers of the node: in its cgroup the task has the same GPUs under others.
        ({"SLURM_JOB_GPUS": "4,5,6,7"}, [0, 1, 2, 3]),
        ({"SLURM_STEP_GPUS": "4,5,6,7", "SLURM_JOB_GPUS": "4,5,6,7,8"}, [0, 1, 2, 3]),
    ],
)
def test_gpus_that_slurm_gave_are_reported(
    tmp_path: Path, python: str, variables: dict[str, str], numbers: list[int]
) -> None:
    driver = {"LD_LIBRARY_PATH": str(fake_nvml.build(tmp_path / "driver").parent)}
    reported = _reports(tmp_path, python, "[[", {**variables, **driver})
    assert reported["gpus"] == [[number, *fake_nvml.reading(number)] for number in numbers]


def test_task_on_a_node_without_a_driver_reports_the_rest(tmp_path: Path) -> None:
    empty = tmp_path / "libnvidia-ml.so.1"
    empty.touch()  # found before the machine's own
    driver = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert _reports(tmp_path, sys.executable, "cpu_s", {"CUDA_VISIBLE_DEVICES": "0", **driver})["gpus"] == []
