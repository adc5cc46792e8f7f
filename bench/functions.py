"""Functions as jobs against submitit's local executor, and a large argument against `pai copy`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench.cli import Machine, call
from bench.table import SMOKE, Row, alternate, ratio_row, sized

HOW = (
    "functions: submitit runs each call in a process of its own and looks for results every second; its 200 "
    "processes start at once. Ours has 8 tasks, which share the items."
)
RUNS = 5
CALLS = sized(5, 1)
ITEMS = sized(200, 2)
ARGUMENT_BYTES = sized(100 << 20, 2 << 20)
TASKS = sized(50, 2)

# Each program measures something several times and prints the median in seconds.
_SUBMIT = """
import openpaisdk
def call(x):
    return x
def run():
    openpaisdk.submit(call, 1).result()
"""
_SUBMIT_REFERENCE = """
import submitit
def call(x):
    return x
executor = submitit.AutoExecutor(folder="submitit-logs", cluster="local")
executor.update_parameters(timeout_min=30)
def run():
    executor.submit(call, 1).result()
"""
_MAP = """
import openpaisdk
def call(x):
    return x
def run():
    assert openpaisdk.map(call, range(%d), limit=%d).results() == list(range(%d))
"""
_MAP_REFERENCE = """
import submitit
def call(x):
    return x
executor = submitit.AutoExecutor(folder="submitit-logs", cluster="local")
executor.update_parameters(timeout_min=30)
def run():
    jobs = executor.map_array(call, range(%d))
    assert [job.result() for job in jobs] == list(range(%d))
"""
_ARGUMENT = """
import os
import openpaisdk
def call(pair):
    return len(pair[1])
def run():
    data = os.urandom(%d)
    began = time.perf_counter()
    futures = openpaisdk.map(call, [(i, data) for i in range(%d)])
    took = time.perf_counter() - began
    assert set(futures.results()) == {len(data)}
    values = futures[0].cluster.storage.list(futures[0].paths.folder.parents[1] / "values")
    # Small ones are the calls of other sizes; of this run there must be one.
    large = [value for value in values if value["size"] >= len(data)]
    assert len(large) == runs, large
    return took
"""
_MEASURE = """
import json, statistics, time
warm, count = %d, %d
runs = 0
took = []
for _ in range(warm + count):
    runs += 1
    began = time.perf_counter()
    measured = run()
    took.append(time.perf_counter() - began if measured is None else measured)
print(json.dumps(statistics.median(took[warm:])))
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        try:
            if not SMOKE:
                call(str(machine.bin / "python"), "-m", "pip", "install", "-q", "submitit")
            return [submitted_call(machine), mapped_items(machine), large_argument(machine)]
        finally:
            machine.close()


def submitted_call(machine: Machine) -> Row:
    warm = sized(2, 0)
    ours, reference = alternate(
        lambda: measure(machine, _SUBMIT, warm, CALLS),
        lambda: measure(machine, _SUBMIT_REFERENCE, warm, CALLS),
        RUNS,
    )
    what = "submit(f).result(), trivial f / submitit's local executor"
    return ratio_row(what, ours, reference, at_most=0.25, show=_seconds)


def mapped_items(machine: Machine) -> Row:
    limit = sized(8, 2)
    ours, reference = alternate(
        lambda: measure(machine, _MAP % (ITEMS, limit, ITEMS), 0, 1),
        lambda: measure(machine, _MAP_REFERENCE % (ITEMS, ITEMS), 0, 1),
        RUNS,
    )
    what = f"map over {ITEMS} trivial items / submitit's map_array"
    return ratio_row(what, ours, reference, at_most=0.1, show=_seconds)


def large_argument(machine: Machine) -> Row:
    """The upload of the argument, as a rate; the calls then read it on the cluster."""
    source = machine.folder / "argument"
    runs = 0

    def ours() -> float:
        home = machine.new_home()
        return measure(machine, _ARGUMENT % (ARGUMENT_BYTES, TASKS), sized(1, 0), 1, home)

    def reference() -> float:
        nonlocal runs
        runs += 1
        source.write_bytes(os.urandom(ARGUMENT_BYTES))
        return machine.timed("pai", "copy", str(source), f"pai://local/home/copied-{runs}")

    ours_s, reference_s = alternate(ours, reference, RUNS)
    megabytes = ARGUMENT_BYTES / 1e6
    what = f"argument of {ARGUMENT_BYTES >> 20} MiB for {TASKS} tasks, uploaded once / pai copy"
    return ratio_row(
        what,
        [megabytes / s for s in ours_s],
        [megabytes / s for s in reference_s],
        at_least=0.7,
        show=lambda rate: f"{rate:.0f} MB/s",
    )


def measure(machine: Machine, program: str, warm: int, count: int, home: Path | None = None) -> float:
    """Median of ``count`` runs in one process, after ``warm`` others."""
    script = machine.work / "measured.py"
    script.write_text(f"import time\n{program}\n{_MEASURE % (warm, count)}")
    done = subprocess.run(
        [str(machine.bin / "python"), script.name],
        env=machine.env(home or machine.home),
        cwd=machine.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"A measured program failed: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout))


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"
