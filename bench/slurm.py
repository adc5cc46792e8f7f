"""Jobs over Slurm against plain `sbatch`, and how often slurmctld is asked; on a real Slurm of our own."""

from __future__ import annotations

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.server import Server, follow_to_end, job
from bench.table import Row, alternate, limit_row, ms, ratio_row

_TESTS = Path(__file__).parents[1] / "tests"
_MANY = 200
_CALM_S = 10.0
# Slurm's scheduler looks once a second: how long a job waits for that depends on when it comes, and differs
# by more than all else takes. So a run is the mean of jobs that come at moments spread evenly over a second.
_MOMENTS = [number / 8 for number in range(8)]
# What is asked because somebody submits, or a step begins or ends, or by us in order to count.
_NOT_COUNTED = re.compile(r"SUBMIT|STEP|COMPLETE|STATS_INFO|RESOURCE_ALLOC|PROLOG|EPILOG|SIGNAL|KILL")

_FILE = "engine: {{type: slurm, folder: {shared}, partition: main}}\n"


def rows() -> list[Row]:
    if os.geteuid() != 0 or not shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin"):
        print("root and Slurm are needed to measure Slurm: see docs/slurm.md")
        return []
    with _slurm() as folder, _server(folder) as server:
        return [one_job(server, folder), many_jobs(server, folder), calls(server)]


@contextmanager
def _slurm() -> Iterator[Path]:
    sys.path[:0] = [str(_TESTS), str(_TESTS / "slurm")]
    from real_slurm import running_slurm  # type: ignore[import-not-found]

    with running_slurm() as slurm:
        os.environ["SLURM_CONF"] = str(slurm.conf)
        yield slurm.folder


@contextmanager
def _server(folder: Path) -> Iterator[Server]:
    home = folder / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text(_FILE.format(shared=folder / "shared"))
    with Server(home=home) as server:
        yield server


def _sbatch(folder: Path, name: str) -> Path:
    marker = folder / f"marker-{name}"
    subprocess.run(
        ["sbatch", "--parsable", "--mem=96M", "--output=/dev/null", f"--wrap=true; touch {marker}"],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return marker


def _wait(markers: list[Path]) -> None:
    for marker in markers:
        while not marker.exists():
            time.sleep(0.002)


def one_job(server: Server, folder: Path) -> Row:
    number = iter(range(10**6))

    def by_us(moment: float) -> float:
        name = f"one-{next(number)}"
        began = _at(moment)
        server.call("POST", "/api/v2/jobs", job(name, "true"))
        if follow_to_end(server, name) != "SUCCEEDED":
            raise RuntimeError("the job failed")
        return _settled(time.perf_counter() - began)

    def by_hand(moment: float) -> float:
        began = _at(moment)
        _wait([_sbatch(folder, f"one-{next(number)}")])
        return _settled(time.perf_counter() - began)

    def ours() -> float:
        return statistics.mean(map(by_us, _MOMENTS))

    def reference() -> float:
        return statistics.mean(map(by_hand, _MOMENTS))

    by_us(0)
    by_hand(0)
    what = "one `true` job over Slurm, submit to SUCCEEDED / sbatch of the same until its marker"
    return ratio_row(what, *alternate(ours, reference, runs=5), at_most=1.5, show=ms)


def _settled(took: float) -> float:
    """The next one finds Slurm idle."""
    while subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout:
        time.sleep(0.05)
    time.sleep(0.2)
    return took


def _at(moment: float) -> float:
    """Begin at this part of a second: nobody may keep step with Slurm's scheduler. Gives when that was."""
    time.sleep((moment - time.perf_counter()) % 1.0)
    return time.perf_counter()


def many_jobs(server: Server, folder: Path, runs: int = 5) -> Row:
    number = iter(range(10**6))

    def ours() -> float:
        names = [f"many-{next(number)}" for _ in range(_MANY)]
        began = _at(random.random())
        with ThreadPoolExecutor(8) as people:
            list(people.map(lambda name: server.call("POST", "/api/v2/jobs", job(name, "true")), names))
        # Seldom: asking takes of the same two cores that run the jobs.
        while server.call("GET", "/api/v2/jobs?state=WAITING,RUNNING,STOPPING&limit=1"):
            time.sleep(0.1)
        return _settled(_MANY / (time.perf_counter() - began))

    def reference() -> float:
        began = _at(random.random())
        with ThreadPoolExecutor(8) as people:
            markers = list(people.map(lambda _: _sbatch(folder, f"many-{next(number)}"), range(_MANY)))
        _wait(markers)
        return _settled(_MANY / (time.perf_counter() - began))

    first, second = alternate(ours, reference, runs=runs)
    what = f"{_MANY} `true` jobs over Slurm / the same by sbatch, until all are over"
    return ratio_row(what, first, second, at_least=0.7, show=lambda rate: f"{rate:.1f}/s")


def calls(server: Server) -> Row:
    """With as many jobs as that waiting and running, and nothing else happening."""
    for number in range(_MANY):
        described = job(f"calm-{number}", "sleep 600", cpu=8)
        server.call("POST", "/api/v2/jobs", described)
    while len(subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout.splitlines()) < _MANY:
        time.sleep(0.5)
    time.sleep(3)
    rates = []
    for _ in range(5):
        before, began = _asked(), time.perf_counter()
        time.sleep(_CALM_S)
        rates.append((_asked() - before) / (time.perf_counter() - began))
    subprocess.run(["scancel", "--user=root"], check=True)
    what = f"calls to slurmctld a second, with {_MANY} of our jobs waiting and running"
    return limit_row(what, [statistics.median(rates)], at_most=2, show=lambda rate: f"{rate:.2f}/s")


def _asked() -> int:
    """Questions that slurmctld has answered, by its own account."""
    said = subprocess.run(["sdiag"], capture_output=True, text=True, check=True).stdout
    counted = re.findall(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", said, re.MULTILINE)
    return sum(int(count) for name, count in counted if not _NOT_COUNTED.search(name))
