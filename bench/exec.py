"""`pai exec`: the cost of a command in a running task, and how soon a key is echoed.

The smoke run of this part needs podman only for its last row.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import shutil
import statistics
import subprocess
import tempfile
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import containers
from bench.cli import RUNS, Machine, row
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized, skipped_row
from paicluster.engines.container import client_detection
from paicluster.engines.container.client import Client

KEYS = sized(1000, 5)
ECHO_TIMEOUT_S = 10.0


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        try:
            return [*in_process(machine), in_container(machine)]
        finally:
            machine.close()


@contextmanager
def running_job(machine: Machine, name: str, *options: str) -> Iterator[None]:
    machine.timed("pai", "sub", "--no-sources", "-j", name, *options, "--", "sleep", "600")
    deadline = time.monotonic() + 60
    while True:
        try:
            machine.timed("pai", "exec", name, "--", "true")
            break
        except RuntimeError:  # not started yet
            if time.monotonic() > deadline:
                raise
    try:
        yield
    finally:
        machine.timed("pai", "stop-job", name)


def in_process(machine: Machine) -> list[Row]:
    with running_job(machine, "process"):
        return [
            row(
                machine,
                "pai exec J -- true, process engine",
                lambda: machine.timed("pai", "exec", "process", "--", "true"),
                8,
            ),
            key_echo(machine, "process"),
        ]


def key_echo(machine: Machine, job: str) -> Row:
    """A key travels to the terminal of the task, which echoes it.

    The 99th percentile is made of the few keys that something else on the machine delayed, so it differs from
    run to run by more than what counts as measured. The row shows the worst run: each must meet the goal.
    """
    runs = []
    for _ in range(sized(5, 1)):
        pid, terminal = pty.fork()
        if pid == 0:
            words = ["pai", "exec", "-t", job, "--", "sh", "-c", "echo ready; exec cat"]
            os.execve(machine.bin / "pai", words, {**machine.env(machine.home), "TERM": "xterm"})
        tty.setraw(terminal)
        _read_until(terminal, b"ready\r\n")
        took = []
        for _ in range(KEYS):
            began = time.perf_counter()
            os.write(terminal, b"x")
            _read_until(terminal, b"x")
            took.append(time.perf_counter() - began)
        os.close(terminal)
        os.waitpid(pid, 0)
        runs.append(sorted(took)[int(len(took) * 0.99)])
    what = f"echo of a key through pai exec -t on loopback, p99 of {KEYS} keys, worst of {len(runs)} runs"
    return limit_row(what, [max(runs)], at_most=0.010, show=ms)


def _read_until(terminal: int, text: bytes) -> None:
    shown = b""
    while not shown.endswith(text):
        if not select.select([terminal], [], [], ECHO_TIMEOUT_S)[0]:
            raise RuntimeError(f"{text!r} was not echoed: {shown!r}")
        shown += os.read(terminal, 4096)


def in_container(machine: Machine) -> Row:
    for program in ("podman", "busybox"):
        if not shutil.which(program):
            return skipped_row("exec in a container", f"{program} is missing")
    client = asyncio.run(client_detection.detect(machine.folder, ("podman",)))
    if not isinstance(client, Client):
        return skipped_row("exec in a container", client.reason)
    containers.make_image(client, machine.folder)
    with running_job(machine, "contained", "-i", containers.IMAGE):
        (described,) = machine.home.glob(".openpai/local/*/tasks/*/*/container.json")
        # Without the last two words, which set the environment of the task.
        words = [*json.loads(described.read_text())["exec"]["plain"][:-2], "true"]

        def run_podman() -> float:
            began = time.perf_counter()
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            return time.perf_counter() - began

        def run_ours() -> float:
            return machine.timed("pai", "exec", "contained", "--", "true")

        ours, reference = alternate(lambda: _median(run_ours), lambda: _median(run_podman), RUNS)
    return ratio_row(
        "pai exec J -- true, container engine / podman exec CTR true",
        ours,
        reference,
        at_most=1.5,
        show=ms,
    )


def _median(measure: object) -> float:
    return statistics.median(measure() for _ in range(sized(5, 1)))  # type: ignore[operator]
