"""Duration of `pai` commands, from an installed wheel with bytecode, against a bare Python interpreter."""

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

from bench.table import SMOKE, Row, alternate, limit_row, ms, ratio_row, sized

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7
WARM_JOBS = sized(20, 2)
SOURCE_FILES = sized(200, 5)
_REMOVED_VARIABLES = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "PYTHONPATH")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        try:
            return [*without_cluster(machine), *on_warm_cluster(machine), first_command(machine)]
        finally:
            machine.close()


class Machine:
    """A new virtual environment with the wheel installed, a home, and an empty working folder.

    A smoke run uses this interpreter's environment: building and installing takes longer than all else.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = Path(sys.executable).parent if SMOKE else self._install(folder)
        self.work = folder / "empty"
        self.work.mkdir()
        self.homes: list[Path] = []
        self.home = self.new_home()

    @staticmethod
    def _install(folder: Path) -> Path:
        wheels, programs = folder / "wheels", folder / "venv" / "bin"
        quiet = ["-q", "--disable-pip-version-check"]
        call(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "-w", str(wheels), str(ROOT))
        call(sys.executable, "-m", "venv", str(folder / "venv"))
        call(str(programs / "python"), "-m", "pip", "install", *quiet, *map(str, wheels.glob("*.whl")))
        return programs

    def new_home(self) -> Path:
        home = self.folder / f"home{len(self.homes)}"
        home.mkdir()
        self.homes.append(home)
        return home

    def env(self, home: Path) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if k not in _REMOVED_VARIABLES}
        return {**inherited, "HOME": str(home), "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def timed(self, *command: str, home: Path | None = None) -> float:
        """Duration of a command in seconds."""
        began = time.perf_counter()
        done = subprocess.run(
            command,
            executable=str(self.bin / command[0]),
            env=self.env(home or self.home),
            cwd=self.work,
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

    def close(self) -> None:
        for home in self.homes:
            if (home / ".openpai").exists():
                self.timed("pai", "stop-cluster", "--now", home=home)
                shutil.rmtree(home, ignore_errors=True)


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")


def row(machine: Machine, what: str, ours: Callable[[], float], at_most: float) -> Row:
    """One run is the median of five: a process is short, and other load on the machine disturbs it."""

    def median_of(measure: Callable[[], float]) -> Callable[[], float]:
        return lambda: statistics.median(measure() for _ in range(sized(5, 1)))

    runs = alternate(median_of(ours), median_of(machine.bare), RUNS)
    return ratio_row(f"{what} / python -c pass", *runs, at_most=at_most, show=ms)


def without_cluster(machine: Machine) -> list[Row]:
    return [
        row(machine, "pai --version", lambda: machine.timed("pai", "--version"), 3.5),
        row(machine, "pai --help", lambda: machine.timed("pai", "--help"), 4),
    ]


def on_warm_cluster(machine: Machine) -> list[Row]:
    for i in range(WARM_JOBS):
        machine.timed("pai", "sub", "-j", f"warm-{i}", "--wait", "true")
    return [
        row(machine, f"pai list-jobs ({WARM_JOBS} jobs)", lambda: machine.timed("pai", "list-jobs"), 8),
        row(machine, "pai job-status J", lambda: machine.timed("pai", "job-status", "warm-1"), 8),
        row(machine, "pai logs J", lambda: machine.timed("pai", "logs", "warm-1"), 8),
        row(machine, "pai cluster-resources", lambda: machine.timed("pai", "cluster-resources"), 8),
        row(
            machine,
            f"shell completion of pai logs warm ({WARM_JOBS} jobs)",
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
    """Time that 200 unchanged files (20 MB), already on the cluster, add to a submission."""
    folder = machine.work / "sources"
    folder.mkdir()
    for i in range(SOURCE_FILES):
        (folder / f"{i}.bin").write_bytes(os.urandom(100_000))
    with_sources = ("pai", "sub", "--sources", "sources", "true")
    time.sleep(2.5)  # within the time stamps' resolution a new file could change unseen: it is read again
    machine.timed(*with_sources)
    took, bare = alternate(
        lambda: machine.timed(*with_sources),
        lambda: machine.timed("pai", "sub", "--no-sources", "true"),
        RUNS,
    )
    shutil.rmtree(folder)
    added = [a - b for a, b in zip(took, bare, strict=True)]
    return limit_row("pai sub with an unchanged source folder: added time", added, at_most=0.150, show=ms)


def first_command(machine: Machine) -> Row:
    took = []
    for _ in range(sized(5, 1)):
        home = machine.new_home()
        took.append(machine.timed("pai", "sub", "--follow", "--", "true", home=home))
        machine.timed("pai", "stop-cluster", "--now", home=home)
    return limit_row(
        "first pai sub of a new home: start the cluster, run the job",
        took,
        at_most=3.0,
        show=lambda s: f"{s:.2f} s",
    )
