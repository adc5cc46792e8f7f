"""Smoke run of every benchmark part: each yields rows, none of them failed. The figures mean nothing."""

from __future__ import annotations

import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.server import Server, job

from support.node import build_portal
from support.server_fixture import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0
PARTS = (
    *("cli", "data", "exec", "functions", "hostile", "jobs", "metrics", "notebooks", "paddlecloud"),
    "protocol",
    *("portal", "portal_compare"),
    *("restapi", "scheduler", "storage", "store", "usage", "webhdfs"),
)
SERVICE_PARTS = ("cloud", "containers", "forward", "slurm")
NOT_PARTS = {"__main__", "load", "probe", "server", "table", "team_load"}

pytestmark = pytest.mark.slow


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path: sockets of Slurm and of containers are in it, whose paths are limited."""
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run_part(part: str, folder: Path) -> list[str]:
    """The table's rows of one part."""
    environment = {**os.environ, "PAI_BENCH_SMOKE": "1", "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "bench", part],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    # 0: all goals met; 1: some not, which a smoke run often does not. Anything else is a broken benchmark.
    assert done.returncode in (0, 1), done.stderr
    table = done.stdout.partition("\n\n")[0].splitlines()
    rows = table[2:]
    assert table[0].startswith("what") and rows, done.stdout + done.stderr
    assert not [row for row in rows if f"{part}: failed:" in row], done.stdout + done.stderr
    return rows


def test_tasks_of_a_killed_server_are_ended() -> None:
    with Server("--cpus", "2") as server:
        server.call("POST", "/api/v2/jobs", job("sleeper", "sleep 1000"))
        path = f"/api/v2/jobs/{server.user}~sleeper"
        eventually(lambda: server.call("GET", path)["jobStatus"]["state"] == "RUNNING")
        server.kill()
        assert server.remaining_pids()
    assert server.remaining_pids() == []


def test_server_that_ended_by_itself_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="The server ended with -9"), Server() as server:
        server.process.kill()
        server.process.wait()


def test_processes_of_a_folder_with_a_longer_name_are_left_alone(tmp_path: Path) -> None:
    server = Server(home=tmp_path / "home-1")
    command = "read line  # a process of its own"
    with (
        subprocess.Popen(["sh", "-c", command, f"{server.home}0"], stdin=subprocess.PIPE) as other,
        subprocess.Popen(["sh", "-c", command, f"{server.home}/tasks"], stdin=subprocess.PIPE) as own,
    ):
        eventually(lambda: str(server.home) in Path(f"/proc/{own.pid}/cmdline").read_text())
        eventually(lambda: str(server.home) in Path(f"/proc/{other.pid}/cmdline").read_text())
        assert server.remaining_pids() == [own.pid]
        server.end_tasks()
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()


def test_every_part_has_a_smoke_run() -> None:
    modules = {module.name for module in pkgutil.iter_modules([str(ROOT / "bench")])}
    assert modules - NOT_PARTS == {*PARTS, *SERVICE_PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_part_yields_rows(part: str, short_folder: Path) -> None:
    if part.startswith("portal"):
        build_portal()
    rows = run_part(part, short_folder)
    assert not [row for row in rows if f"{part}: not measured:" in row]


@pytest.mark.service
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=[pytest.mark.xdist_group(part)] if part == "cloud" else [])
        for part in SERVICE_PARTS
    ],
)
def test_part_with_a_service_yields_rows_or_the_missing_service(part: str, short_folder: Path) -> None:
    run_part(part, short_folder)


def test_missing_service_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (row,) = run_part("containers", tmp_path)
    assert row.startswith("containers: not measured: podman is missing") and row.endswith("not measured")
