"""`log_metrics`: what is written, what is refused, and what never disturbs the program."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pairuntime.user_api import Runtime, log_metrics

MAX_US = 20


@pytest.fixture(name="file")
def metrics_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "deep" / "metrics.jsonl"
    monkeypatch.setenv("PAI_METRICS_FILE", str(file))
    return file


class Scalar:
    """A number as numpy and torch have them."""

    def __init__(self, value: Any):
        self._value = value

    def item(self) -> Any:
        return self._value


class Tensor:
    """Several numbers."""

    def item(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The lines, as strict parsers of JSON read them."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not in JSON")

    return [json.loads(line, parse_constant=refuse) for line in file.read_text().splitlines()]


def test_one_line_each_with_step_and_time(file: Path) -> None:
    before = time.time() - 0.01

    log_metrics(1, loss=0.5, accuracy=1)
    log_metrics(2, {"train/loss": 0.25}, accuracy=2)
    Runtime().log_metrics(3, loss=0)

    first, second, third = lines_of(file)
    assert (first["step"], first["values"]) == (1, {"loss": 0.5, "accuracy": 1.0})
    assert before <= first["time"] <= time.time()
    assert second["values"] == {"accuracy": 2.0, "train/loss": 0.25}
    assert third["values"] == {"loss": 0.0}
    assert "attempt" not in first


def test_steps_are_counted_on_where_none_is_given(file: Path) -> None:
    log_metrics(loss=1)
    log_metrics({"loss": 1})
    log_metrics(10, loss=1)
    log_metrics(loss=1)
    log_metrics(step=Scalar(20).item(), loss=1)

    assert [line["step"] for line in lines_of(file)] == [0, 1, 10, 11, 20]


def test_metrics_with_the_names_of_parameters(file: Path) -> None:
    log_metrics(1, metrics=3, values=4)

    assert lines_of(file)[0]["values"] == {"metrics": 3.0, "values": 4.0}


def test_scalars_of_other_libraries_and_what_json_has_no_number_for(file: Path) -> None:
    log_metrics(1, a=Scalar(0.5), b=Scalar(True), c=math.nan, d=math.inf, e=Scalar(-math.inf))

    values = lines_of(file)[0]["values"]

    assert values == {"a": 0.5, "b": 1.0, "c": "NaN", "d": "Infinity", "e": "-Infinity"}
    assert float(values["e"]) == -math.inf


_NO_NUMBERS = {
    "text": "0.5",
    "none": None,
    "list": [1],
    "tensor of several": Tensor(),
    "more than a float holds": 10**400,
    "complex": 1j,
    "scalar of a text": Scalar("x"),
}


@pytest.mark.parametrize("value", _NO_NUMBERS.values(), ids=_NO_NUMBERS)
def test_what_is_no_number_is_refused_with_its_name(file: Path, value: object) -> None:
    with pytest.raises(TypeError, match="log_metrics: loss is no number"):
        log_metrics(1, loss=value)
    assert not file.exists()


@pytest.mark.parametrize("step", ["one", math.nan, [1], {1: 2}.keys()])
def test_a_step_that_is_no_number_is_refused(file: Path, step: object) -> None:
    with pytest.raises(TypeError, match="the step is no whole number"):
        log_metrics(step, loss=1)


def test_the_order_of_step_and_metrics_is_checked(file: Path) -> None:
    with pytest.raises(TypeError, match="the step comes first"):
        log_metrics({"loss": 1}, 3)


def test_nothing_happens_outside_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAI_METRICS_FILE", raising=False)
    log_metrics(0, loss=1)
    with pytest.raises(TypeError, match="no number"):
        log_metrics(0, loss="1")


def test_lines_of_a_restarted_attempt_are_marked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FC_FRAMEWORK_ATTEMPT_ID", "0")
    monkeypatch.setenv("FC_TASK_ATTEMPT_ID", "2")
    log_metrics(5, loss=1)

    assert lines_of(file)[0]["attempt"] == "0.2"


def run(program: str, file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**os.environ, "PAI_METRICS_FILE": str(file), **variables}
    return subprocess.run(
        [sys.executable, "-c", "from openpaisdk.runtime import log_metrics\n" + program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_killed_program_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    done = run("import os\nfor step in range(100): log_metrics(step, loss=1)\nos.kill(os.getpid(), 9)", file)

    assert done.returncode == -signal.SIGKILL
    assert [line["step"] for line in lines_of(file)] == list(range(100))


def test_threads_and_forked_processes_write_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    program = """
import os, threading
log_metrics(0, start=1)
pids = [os.fork() for _ in range(2)]
def work():
    for step in range(200): log_metrics(step, {"x" * 500: step})
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if all(pids):
    for pid in pids: os.waitpid(pid, 0)
"""
    assert run(program, file).stderr == ""

    # Two forks are four processes.
    assert len(lines_of(file)) == 1 + 4 * 4 * 200


def test_a_disk_that_takes_nothing_is_reported_once_and_stops_no_program() -> None:
    done = run("for step in range(3): log_metrics(step, loss=1)\nprint('trained')", Path("/dev/full"))

    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("\n") == 1
    assert "metrics are lost, /dev/full cannot be written" in done.stderr


def test_one_metric_takes_less_than_twenty_microseconds(file: Path) -> None:
    def cost_us() -> float:
        started_s = time.thread_time()
        for step in range(2000):
            log_metrics(step, loss=0.123456)
        return (time.thread_time() - started_s) / 2000 * 1e6

    # The best of some: caches of the processor are shared with other programs.
    assert min(cost_us() for _ in range(10)) < MAX_US
    assert json.loads(file.read_text().splitlines()[-1])["step"] == 1999
