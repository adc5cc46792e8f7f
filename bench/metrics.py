"""Metrics of tasks: `pai runs` of a large sweep against `pai list-jobs`, and what a task pays to log one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from pairuntime import user_api

TASKS = sized(1000, 3)
CALLS = sized(20_000, 20)
RUNS = 7
# Each task logs two metrics of five steps, as a program does.
TASK = """i=0; while [ $i -lt 5 ]; do i=$((i + 1))
echo "{\\"step\\": $i, \\"values\\": {\\"loss\\": 0.$i, \\"val/acc\\": $i.5}}"; done >> $PAI_METRICS_FILE"""
HOW = (
    f"metrics: the sweep has {TASKS} tasks with two metrics each; both commands are those of this checkout, "
    "and the list has that one job. A call of log_metrics writes one line to a file on the disk of /tmp."
)


def rows() -> list[Row]:
    return [list_of_runs(), call_of_log_metrics()]


def list_of_runs() -> Row:
    with embedded_cluster() as pai:
        pai(
            "sub",
            "--wait",
            "-j",
            "sweep",
            "--no-sources",
            "--mem",
            "8m",
            "--array",
            f"i=1-{TASKS}",
            "--",
            TASK,
        )
        pai("runs", "sweep")  # reads what is not read yet
        measured = alternate(
            lambda: timed(lambda: pai("runs", "sweep", "--sort", "loss")),
            lambda: timed(lambda: pai("list-jobs")),
            RUNS,
        )
    return ratio_row(f"pai runs of a sweep of {TASKS} tasks / pai list-jobs", *measured, at_most=3, show=ms)


def call_of_log_metrics() -> Row:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        os.environ["PAI_METRICS_FILE"] = f"{folder}/metrics.jsonl"
        try:
            costs = [timed(_log) / CALLS for _ in range(sized(RUNS, 1))]
        finally:
            del os.environ["PAI_METRICS_FILE"]
            user_api.log_metrics(0, loss=0.0)  # closes the file
    return limit_row("log_metrics, one metric", costs, at_most=20e-6, show=lambda v: f"{v * 1e6:.1f} us")


def _log() -> None:
    for step in range(CALLS):
        user_api.log_metrics(step, loss=0.5)


@contextmanager
def embedded_cluster() -> Iterator[Callable[..., None]]:
    """A function that runs `pai` with a home of its own."""
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PAI_")} | {"HOME": str(folder)}
    program = str(Path(sys.executable).with_name("pai"))

    def pai(*words: str) -> None:
        done = subprocess.run([program, *words], env=environment, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"pai {words[0]} failed: {done.stderr}")

    try:
        yield pai
    finally:
        pai("stop-cluster", "--now")
        shutil.rmtree(folder, ignore_errors=True)


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
