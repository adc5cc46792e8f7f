"""`pai` as a process whose memory is measured."""

from __future__ import annotations

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
    """The most it had at any time."""
    took_s: float


# A small process starts it: a new process has at first the memory of the one that started it.
_START = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as report:
    report.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


def measured_pai(*words: object) -> MeasuredRun:
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("r") as report:
        pai = Path(sys.executable).parent / "pai"
        done = subprocess.run(
            [sys.executable, "-c", _START, report.name, pai, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        memory_mb = int(report.read()) >> 10
    return MeasuredRun(done.returncode, done.stdout, done.stderr, memory_mb, time.monotonic() - began)
