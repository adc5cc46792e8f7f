"""The suite's own names, groups, order, and list of tests that are not quick, by tests/conftest.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import TESTS

_SAMPLE = """
import pytest

def note(line):
    with open("notes", "a") as notes:
        notes.write(line + "\\n")

@pytest.fixture(scope="module")
def server():
    note("server")

@pytest.mark.parametrize("number", range(6))
def test_single(number):
    note("single")

@pytest.mark.parametrize("number", range(6))
def test_with_server(server, number):
    note("with server")

@pytest.mark.slow
def test_slow():
    note("slow")

@pytest.mark.slow(60)
def test_slowest():
    note("slowest")

@pytest.mark.service
def test_with_service():
    note("with service")
"""


_BUSY_SAMPLE = """
import time
import pytest

def be_busy():
    ends = time.process_time() + 2.1
    while time.process_time() < ends:
        pass

def test_busy():
    be_busy()

def test_quick():
    time.sleep(2.2)

@pytest.mark.slow
def test_slow():
    be_busy()
"""


_LONG_SAMPLE = """
import pytest

@pytest.mark.parametrize("content", ["a" * 5_000_000, "a" * 6_000_000, b"\\xff" * 5_000_000, "b" * 80])
def test_long(content):
    pass
"""


def run_sample(folder: Path, workers: int, sample: str, *more: str) -> str:
    """Output of pytest."""
    (folder / "test_sample.py").write_text(sample)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow:\n  service:\n")
    words = ["-p", "conftest", "-n", str(workers), "--dist", "loadgroup"]
    for plugin in ("anyio", "cacheprovider", "schemathesis", "zarr"):
        words += ["-p", f"no:{plugin}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--no-loadscope-reorder", *more, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def notes_of_run(folder: Path, workers: int) -> list[str]:
    """Lines that the sample's tests and its fixture wrote, in order."""
    run_sample(folder, workers, _SAMPLE)
    return (folder / "notes").read_text().splitlines()


def test_fixture_of_a_file_is_made_in_one_worker(tmp_path: Path) -> None:
    notes = notes_of_run(tmp_path, workers=2)
    assert sorted(notes) == sorted(
        ["slowest", "slow", "server", *["with server"] * 6, "with service", *["single"] * 6]
    )


def test_longest_groups_start_first(tmp_path: Path) -> None:
    notes = notes_of_run(tmp_path, workers=1)
    assert notes == ["slowest", "slow", "server", *["with server"] * 6, "with service", *["single"] * 6]


def test_long_parameters_have_short_names(tmp_path: Path) -> None:
    printed = run_sample(tmp_path, 1, _LONG_SAMPLE, "-v")
    names = set(re.findall(r"test_long\[(.*)\]", printed))
    assert names == {
        "a" * 40 + "... (5000000)",
        "a" * 40 + "... (6000000)",
        r"\xff" * 40 + "... (5000000)",
        "b" * 80,
    }


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_busy_tests_are_listed_unless_they_are_marked_slow(tmp_path: Path, workers: int) -> None:
    printed = run_sample(tmp_path, workers, _BUSY_SAMPLE)
    _, listed = printed.split("more than 2 s of processor time, and not marked slow")
    assert "test_sample.py::test_busy" in listed
    assert "test_slow" not in listed and "test_quick" not in listed
