"""What a person waits for: `pai`, from an installed wheel with bytecode, against a bare interpreter."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.table import Row, alternate, limit_row, ms, ratio_row

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7
DROPPED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "PYTHONPATH")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        try:
            return [*at_once(machine), *against_a_warm_cluster(machine), first_command(machine)]
        finally:
            machine.leave()


class Machine:
    """A fresh virtual environment with the wheel in it, a home, and an empty folder to stand in."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        wheels = folder / "wheels"
        quietly = ["-q", "--disable-pip-version-check"]
        call(sys.executable, "-m", "pip", "wheel", *quietly, "--no-deps", "-w", str(wheels), str(ROOT))
        call(sys.executable, "-m", "venv", str(folder / "venv"))
        call(str(self.bin / "python"), "-m", "pip", "install", *quietly, *map(str, wheels.glob("*.whl")))
        self.here = folder / "empty"
        self.here.mkdir()
        self.homes: list[Path] = []
        self.home = self.new_home()

    def new_home(self) -> Path:
        home = self.folder / f"home{len(self.homes)}"
        home.mkdir()
        self.homes.append(home)
        return home

    def env(self, home: Path) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in DROPPED}
        return {**kept, "HOME": str(home), "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def timed(self, *command: str, home: Path | None = None) -> float:
        """Seconds from Enter to prompt."""
        began = time.perf_counter()
        done = subprocess.run(
            command,
            executable=str(self.bin / command[0]),
            env=self.env(home or self.home),
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        took = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.decode()}")
        return took

    def bare(self) -> float:
        return self.timed("python", "-c", "pass")

    def leave(self) -> None:
        for home in self.homes:
            if (home / ".openpai").exists():
                self.timed("pai", "stop-cluster", "--now", home=home)
                shutil.rmtree(home, ignore_errors=True)


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")


def row(machine: Machine, what: str, ours: Callable[[], float], at_most: float) -> Row:
    """One run is the median of a few: a process is short, and the machine does other things meanwhile."""

    def several(one: Callable[[], float]) -> Callable[[], float]:
        return lambda: statistics.median(one() for _ in range(5))

    runs = alternate(several(ours), several(machine.bare), RUNS)
    return ratio_row(f"{what} / python -c pass", *runs, at_most=at_most, show=ms)


def at_once(machine: Machine) -> list[Row]:
    return [
        row(machine, "pai --version", lambda: machine.timed("pai", "--version"), 3.5),
        row(machine, "pai --help", lambda: machine.timed("pai", "--help"), 4),
    ]


def against_a_warm_cluster(machine: Machine) -> list[Row]:
    for i in range(20):
        machine.timed("pai", "sub", "-j", f"warm-{i}", "--wait", "true")
    return [
        row(machine, "pai list-jobs (20 jobs)", lambda: machine.timed("pai", "list-jobs"), 8),
        row(machine, "pai job-status J", lambda: machine.timed("pai", "job-status", "warm-7"), 8),
        row(machine, "pai logs J", lambda: machine.timed("pai", "logs", "warm-7"), 8),
        row(machine, "pai cluster-resources", lambda: machine.timed("pai", "cluster-resources"), 8),
        row(
            machine,
            "TAB after pai logs warm (20 jobs)",
            lambda: machine.timed("pai", "__complete", "logs", "warm"),
            8,
        ),
        unchanged_sources(machine),
        row(
            machine,
            "pai sub --follow -- true, warm cluster",
            lambda: machine.timed("pai", "sub", "--follow", "--", "true"),
            14,
        ),
    ]


def unchanged_sources(machine: Machine) -> Row:
    """200 files, 20 MB, that the cluster has already: what they add to a submission."""
    folder = machine.here / "sources"
    folder.mkdir()
    for i in range(200):
        (folder / f"{i}.bin").write_bytes(os.urandom(100_000))
    with_them = ("pai", "sub", "--sources", "sources", "true")
    time.sleep(2.5)  # what was just written may change again unseen, and is not believed yet
    machine.timed(*with_them)
    took, bare = alternate(
        lambda: machine.timed(*with_them), lambda: machine.timed("pai", "sub", "--no-sources", "true"), RUNS
    )
    shutil.rmtree(folder)
    added = [a - b for a, b in zip(took, bare, strict=True)]
    return limit_row("pai sub with an unchanged folder: time added", added, at_most=0.150, show=ms)


def first_command(machine: Machine) -> Row:
    took = []
    for _ in range(5):
        home = machine.new_home()
        took.append(machine.timed("pai", "sub", "--follow", "--", "true", home=home))
        machine.timed("pai", "stop-cluster", "--now", home=home)
    return limit_row(
        "the first command ever: cluster started, job done", took, at_most=3.0, show=lambda s: f"{s:.2f} s"
    )
