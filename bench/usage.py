"""Sampling of what tasks use: the part of a core that it takes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.table import Row, limit_row, sized
from paicluster.engines.process.task_processes import TaskProcesses
from paicluster.metrics.usage import MeasuredTask, UsageReading
from paicluster.metrics.usage_history import UsageHistory
from paicluster.metrics.usage_sampler import DEFAULT_INTERVAL_S, UsageSampler

TASKS = sized(100, 3)
SAMPLES = sized(60, 2)
HOW = (
    f"usage: {TASKS} trees of three processes stand for tasks. A sample's processor time is that of its "
    f"threads, with the history; it is divided by the interval, {DEFAULT_INTERVAL_S:g} s."
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder, process_trees(TASKS) as pids:
        costs = asyncio.run(sample_costs(Path(folder), pids))
    shares = [cost_s / DEFAULT_INTERVAL_S for cost_s in costs]
    return [
        limit_row(f"sampling {TASKS} tasks, share of a core", shares, at_most=0.01, show=lambda v: f"{v:.2%}")
    ]


@contextmanager
def process_trees(count: int) -> Iterator[list[int]]:
    """Pids of shells, each with two children that wait."""
    command = ["sh", "-c", "sleep 1000 & sleep 1000 & wait"]
    shells = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield [shell.pid for shell in shells]
    finally:
        for shell in shells:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


async def sample_costs(folder: Path, pids: Sequence[int]) -> list[float]:
    """Processor seconds of each sample after the first ones, which look at all processes of the machine."""
    uids = [str(number) for number in range(len(pids))]
    tasks = [MeasuredTask(uid, int(uid), "user", f"job{uid}", "default", "main", 0, "node") for uid in uids]
    processes = TaskProcesses()
    supervisors = dict(zip(uids, pids, strict=True))

    def read() -> UsageReading:
        started_s = time.thread_time()
        found = processes.sample(supervisors, ())
        return UsageReading(found, {}, time.thread_time() - started_s)

    async def read_in_thread(uids: Sequence[str]) -> UsageReading:
        return await asyncio.to_thread(read)

    history = UsageHistory(folder / "usage.db")
    history.open()
    sampler = UsageSampler(history, read_in_thread, lambda: tasks, lambda: ["default"])
    for _ in range(4):
        await sampler.sample()
    costs = [await sampler.sample() for _ in range(SAMPLES)]
    history.close()
    return costs
