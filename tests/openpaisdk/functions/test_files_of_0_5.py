"""Calls, results, checkpoints, futures and jobs that version 0.5 saved, read by the SDK and by tasks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from openpaisdk import Job, errors
from openpaisdk.functions import helpers, task_errors
from openpaisdk.functions.function_job import open_job
from paicluster.engines.common import runtime_install
from paiprotocol.jobs.problems import Problem
from pairuntime.task import delayed_call
from pairuntime.transport import call_format
from support.paths import FILES_OF_0_5

RESULTS = {
    "result-of-a-failed-command.pickle": helpers.CommandFailed,
    "result-with-an-error-of-the-sdk.pickle": errors.ConfigError,
}
# A task has the archive of the runtime and the stand-in of the SDK, and no package.
IN_A_TASK = """\
import pickle, sys
from pairuntime.transport import call_format

for index in (0, 1):
    data = open(sys.argv[1] + "/calls", "rb").read()
    function, arguments = map(
        pickle.loads, call_format.read_call(lambda at, length: data[at : at + length], index)
    )
    print(function(*arguments[0], **arguments[1]))
print(pickle.load(open(sys.argv[1] + "/checkpoint.pickle", "rb")).result())
failed = open(sys.argv[1] + "/result-of-a-failed-command.pickle", "rb").read()
print(pickle.loads(call_format.read_result(failed)[1]).returncode)
print(type(pickle.load(open(sys.argv[1] + "/task-error.pickle", "rb"))).__name__)
import openpaisdk
print(openpaisdk.__file__.startswith(sys.argv[2]))
"""


def saved(name: str) -> bytes:
    return (FILES_OF_0_5 / name).read_bytes()


@pytest.mark.parametrize(("index", "result"), [(0, "hello"), (1, 5.0)])
def test_saved_call_is_made(index: int, result: object) -> None:
    data = saved("calls")
    parts = call_format.read_call(lambda offset, length: data[offset : offset + length], index)
    function, (args, kwargs) = map(pickle.loads, parts)
    assert function is delayed_call.call
    assert function(*args, **kwargs) == result


@pytest.mark.parametrize("name", RESULTS)
def test_saved_exception_is_the_one_that_is_caught(name: str) -> None:
    fields, payload = call_format.read_result(saved(name))
    assert fields["status"] == call_format.RAISED
    assert type(pickle.loads(payload)) is RESULTS[name]


def test_saved_result_is_read() -> None:
    fields, payload = call_format.read_result(saved("result-of-a-command.pickle"))
    assert (fields["status"], pickle.loads(payload)) == (call_format.DONE, "hello")


def test_function_continues_from_a_saved_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAI_JOB_NAME", raising=False)
    checkpoint = pickle.loads(saved("checkpoint.pickle"))
    assert type(checkpoint) is helpers.DelayedSubmission
    assert [step.done() for step in checkpoint.function] == [True, False]
    assert checkpoint.result() == ["first", "second"]


def test_saved_error_of_a_call_is_the_one_that_is_caught() -> None:
    error = pickle.loads(saved("task-error.pickle"))
    assert type(error) is task_errors.TaskOutOfMemory
    assert (error.job, error.exit_code, error.log_end) == ("train", 137, "epoch 3")


def test_saved_error_of_a_job_has_its_problems() -> None:
    error = pickle.loads(saved("protocol-error.pickle"))
    assert type(error) is errors.ProtocolError
    assert {type(problem) for problem in error.problems} == {Problem} and "The job has 2 problems" in str(
        error
    )


def test_saved_future_is_opened_as_now() -> None:
    class Named(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            opener = super().find_class(module, name)
            assert opener is open_job
            return lambda *arguments: arguments

    with (FILES_OF_0_5 / "future.pickle").open("rb") as file:
        assert Named(file).load()[1] == "call_um2gqb_0"


def test_saved_job_is_built_as_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = pickle.loads(saved("job.pickle"))
    now = Job("train").one_liner(
        "python train.py --lr 0.1",
        "ubuntu:24.04",
        gpu=1,
        mem="4g",
        timeout="2h",
        sources=[],
        env={"A": "1"},
        tags=["night"],
    )
    assert type(job) is Job and job.protocol == now.protocol
    assert job._recipe.preview() == now.protocol


def test_task_without_the_sdk_reads_them(tmp_path: Path) -> None:
    archive = runtime_install.install(tmp_path)
    library = archive.parent / "lib"
    done = subprocess.run(
        [sys.executable, "-S", "-c", IN_A_TASK, str(FILES_OF_0_5), str(library)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{library}:{archive}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ["hello", "5.0", "['first', 'second']", "3", "TaskOutOfMemory", "True"]
    assert done.stdout.splitlines() == lines, done.stderr
