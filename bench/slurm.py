"""Jobs on the Slurm engine against plain `sbatch`, and the request rate to slurmctld; on a real Slurm."""

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
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized, skipped_row

_TESTS = Path(__file__).parents[1] / "tests"
_JOBS = sized(200, 2)
_IDLE_INTERVAL_S = sized(10.0, 0.5)
# Slurm's scheduler runs once a second: how long a job waits for it depends on the submission time, and varies
# by more than all else takes. So a run is the mean of jobs submitted at times spread evenly over a second.
_PHASES = [number / 8 for number in range(sized(8, 1))]
# Requests caused by a submission, by the begin or end of a step, or by this benchmark itself.
_NOT_COUNTED = re.compile(r"SUBMIT|STEP|COMPLETE|STATS_INFO|RESOURCE_ALLOC|PROLOG|EPILOG|SIGNAL|KILL")

_FILE = "engine: {{type: slurm, folder: {shared}, partition: main}}\n"


def rows() -> list[Row]:
    if os.geteuid() != 0 or not shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin"):
        reason = "it needs root" if os.geteuid() != 0 else "slurmctld is missing"
        return [skipped_row("slurm", reason)]
    with _slurm() as folder, _server(folder) as server:
        return [one_job(server, folder), many_jobs(server, folder), controller_requests(server)]


@contextmanager
def _slurm() -> Iterator[Path]:
    sys.path.insert(0, str(_TESTS))
    from support.slurm_cluster import running_slurm

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

    def run_job(phase: float) -> float:
        name = f"one-{next(number)}"
        began = _wait_for_phase(phase)
        server.call("POST", "/api/v2/jobs", job(name, "true"))
        if follow_to_end(server, name) != "SUCCEEDED":
            detail = server.call("GET", f"/api/v2/jobs/{server.user}~{name}")
            raise RuntimeError(f"the job failed: {detail['jobStatus']['appExitDiagnostics']}")
        return _wait_until_idle(time.perf_counter() - began)

    def run_sbatch(phase: float) -> float:
        began = _wait_for_phase(phase)
        _wait([_sbatch(folder, f"one-{next(number)}")])
        return _wait_until_idle(time.perf_counter() - began)

    def ours() -> float:
        return statistics.mean(map(run_job, _PHASES))

    def reference() -> float:
        return statistics.mean(map(run_sbatch, _PHASES))

    run_job(0)
    run_sbatch(0)
    what = "one `true` job on Slurm, submit to SUCCEEDED / sbatch of the same, until its marker file"
    return ratio_row(what, *alternate(ours, reference, runs=5), at_most=1.5, show=ms)


def _wait_until_idle(took: float) -> float:
    """Wait until Slurm is idle, so that the next run finds it so."""
    while subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout:
        time.sleep(0.05)
    time.sleep(0.2)
    return took


def _wait_for_phase(phase: float) -> float:
    """Sleep until this fraction of a second, out of step with Slurm's scheduler; the time then."""
    time.sleep((phase - time.perf_counter()) % 1.0)
    return time.perf_counter()


def many_jobs(server: Server, folder: Path, runs: int = 5) -> Row:
    number = iter(range(10**6))

    def ours() -> float:
        names = [f"many-{next(number)}" for _ in range(_JOBS)]
        began = _wait_for_phase(random.random())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: server.call("POST", "/api/v2/jobs", job(name, "true")), names))
        # Polled seldom: requests use the same cores that run the jobs.
        while server.call("GET", "/api/v2/jobs?state=WAITING,RUNNING,STOPPING&limit=1"):
            time.sleep(0.1)
        return _wait_until_idle(_JOBS / (time.perf_counter() - began))

    def reference() -> float:
        began = _wait_for_phase(random.random())
        with ThreadPoolExecutor(8) as pool:
            markers = list(pool.map(lambda _: _sbatch(folder, f"many-{next(number)}"), range(_JOBS)))
        _wait(markers)
        return _wait_until_idle(_JOBS / (time.perf_counter() - began))

    first, second = alternate(ours, reference, runs=runs)
    what = f"{_JOBS} `true` jobs on Slurm / the same by sbatch, until all have finished"
    return ratio_row(what, first, second, at_least=0.7, show=lambda rate: f"{rate:.1f}/s")


def controller_requests(server: Server) -> Row:
    """Request rate to slurmctld with pending and running jobs, and no other activity."""
    for number in range(_JOBS):
        server.call("POST", "/api/v2/jobs", job(f"idle-{number}", "sleep 600", cpu=8))
    while len(subprocess.run(["squeue", "-h"], capture_output=True, check=True).stdout.splitlines()) < _JOBS:
        time.sleep(0.5)
    time.sleep(3)
    rates = []
    for _ in range(sized(5, 1)):
        before, began = _request_count(), time.perf_counter()
        time.sleep(_IDLE_INTERVAL_S)
        rates.append((_request_count() - before) / (time.perf_counter() - began))
    subprocess.run(["scancel", "--user=root"], check=True)
    what = f"requests to slurmctld per second, with {_JOBS} jobs pending and running"
    return limit_row(what, [statistics.median(rates)], at_most=2, show=lambda rate: f"{rate:.2f}/s")


def _request_count() -> int:
    """Requests that slurmctld has answered, by its own statistics."""
    statistics_text = subprocess.run(["sdiag"], capture_output=True, text=True, check=True).stdout
    counted = re.findall(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", statistics_text, re.MULTILINE)
    return sum(int(count) for name, count in counted if not _NOT_COUNTED.search(name))
