"""Commands whose memory and time are measured, with all processes that they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class MeasuredRun:
    status: int
    out: str
    err: str
    memory_mb: int
    """The most that all its processes had together at any time, or one of them at its peak."""
    took_s: float


# A small process starts it: a new process has at first the memory of the one that started it. Memory that
# processes share is divided among them (Pss).
_START = """
import re, resource, subprocess, sys

def memory_kb(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            size = int(re.search(r"^Pss: +([0-9]+) kB", f.read(), re.M)[1])
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
    except (OSError, TypeError):
        return 0  # it has ended
    return size + sum(map(memory_kb, children))

peak = 0
process = subprocess.Popen(sys.argv[2:])
while True:
    try:
        status = process.wait(0.1)
        break
    except subprocess.TimeoutExpired:
        peak = max(peak, memory_kb(process.pid))
with open(sys.argv[1], "w") as report:
    report.write(str(max(peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)))
sys.exit(status)
"""


def measured_pai(*words: object, limit_s: float | None = None) -> MeasuredRun:
    return measured_run(Path(sys.executable).parent / "pai", *words, limit_s=limit_s)


def measured_run(*command: object, limit_s: float | None = None) -> MeasuredRun:
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("r") as report:
        with subprocess.Popen(
            [sys.executable, "-c", _START, report.name, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=limit_s)
            except BaseException:
                # The command, too, not only the process that measures it; Ctrl-C does not reach its session.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        memory_mb = int(report.read()) >> 10
    return MeasuredRun(process.returncode, out, err, memory_mb, time.monotonic() - began)
