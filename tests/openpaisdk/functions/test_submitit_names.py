"""Names and options of submitit that scripts use besides those of its first examples."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import openpaisdk.functions as submitit
from openpaisdk.functions.submitit_options import job_options
from paiprotocol.errors import NotFound, PaiError, UsageError
from support.server_fixture import eventually

TIMEOUT_S = 120


class Counter(submitit.helpers.Checkpointable):
    """Has no ``__init__``, and is created with an argument all the same."""

    starts = 0

    def __call__(self, gate: str) -> int:
        self.starts += 1
        print("start", self.starts, flush=True)
        while not Path(gate).exists():
            time.sleep(0.02)
        return self.starts


def test_interrupted_calls_continue_and_keep_the_logs_of_all_attempts(here_on_host) -> None:
    def begin(gate: str) -> str:
        print("begin", flush=True)
        while not Path(gate).exists():
            time.sleep(0.02)
        return "returned"

    gate = here_on_host / "gate"
    executor = submitit.AutoExecutor(folder="logs")
    jobs = [executor.submit(Counter("any"), str(gate)), executor.submit(begin, str(gate))]
    for job, line in zip(jobs, ("start 1\n", "begin\n"), strict=True):
        eventually(lambda job=job, line=line: job.stdout() == line)
        job._interrupt()
    for job, lines in zip(jobs, ("start 1\nstart 2\n", "begin\nbegin\n"), strict=True):
        eventually(lambda job=job, lines=lines: job.stdout() == lines)
    gate.touch()
    assert [job.result(TIMEOUT_S) for job in jobs] == [2, "returned"]
    assert jobs[0].get_logs_path("stdout").read_text() == "start 1\nstart 2\n"
    with pytest.raises(PaiError, match="has already ended"):
        jobs[0]._interrupt(timeout=True)


def test_job_is_opened_by_its_id(here_on_host) -> None:
    executor = submitit.AutoExecutor(folder="logs")
    single = executor.submit(pow, 2, 3)
    array = executor.map_array(pow, [2, 3], [4, 5])
    assert isinstance(single, submitit.Job) and submitit.Job[int] is not None
    assert submitit.Job("logs", single.job_id).result(TIMEOUT_S) == 8
    assert submitit.LocalJob("logs", array[1].job_id).result(TIMEOUT_S) == 243
    call = submitit.SlurmJob("logs", array[1].job_id).submission()
    assert (call.function, call.args, call.done()) == (pow, (3, 5), False) and call.result() == 243
    for unknown in ("no-such", f"{array.job}_7"):
        with pytest.raises(NotFound, match=unknown):
            submitit.Job("logs", unknown)


def test_batch_is_submitted_when_a_job_of_it_is_asked(here_on_host) -> None:
    executor = submitit.AutoExecutor(folder="logs")
    with executor.batch(allow_implicit_submissions=True):
        first = executor.submit(abs, -1)
        assert first.job_id and first.result(TIMEOUT_S) == 1
        second = executor.submit(abs, -2)
    assert second.result(TIMEOUT_S) == 2 and second.job != first.job
    with executor.batch(), pytest.raises(AttributeError, match="in a batch"):
        executor.submit(abs, -1).job_id  # noqa: B018
    with pytest.warns(RuntimeWarning, match="Nothing was submitted"), executor.batch():
        pass
    with pytest.warns(UserWarning, match="no calls"):
        assert executor.map_array(abs, []) == []


def test_streams_and_awaitables(here_on_host) -> None:
    def speak() -> int:
        print("to output", flush=True)
        print("to error", file=sys.stderr, flush=True)
        return 5

    executor = submitit.AutoExecutor(folder="logs")
    executor.update_parameters(stderr_to_stdout=True)
    job = executor.submit(speak)

    async def results() -> list[int]:
        return [await result for result in job.awaitable().results_as_completed()]

    assert asyncio.run(asyncio.wait_for(results(), TIMEOUT_S)) == [5]
    assert job.stderr() is None and sorted(job.stdout().splitlines()) == ["to error", "to output"]
    assert [*submitit.helpers.as_completed([job], poll_frequency=0.1)] == [job]
    executor.update_parameters(stderr_to_stdout=False, slurm_max_pickle_size_gb=1e-12)
    with pytest.raises(RuntimeError, match="max_pickle_size_gb is 1e-12"):
        executor.submit(speak)


def test_parameters_of_slurm() -> None:
    accepted = job_options(
        {
            "tasks_per_node": 2,
            "slurm_ntasks_per_node": 3,
            "slurm_time": 120,
            "timeout_min": 60,
            "slurm_gpus_per_node": "volta:6",
            "slurm_open_mode": "append",
            "slurm_hold": True,
            "mem_gb": None,
        }
    )
    assert accepted["tasks_per_node"] == 3 and accepted["timeout"] == 7200.0
    assert accepted["gpus_per_node"] == 6
    with pytest.raises(NameError, match="'first', 'second'"):
        job_options({"first": 1, "local_second": 2})
    with pytest.raises(AssertionError, match="mem_gb is a number"):
        job_options({"mem_gb": "2.0GB"})


@pytest.mark.filterwarnings("ignore:Nothing was submitted")
@pytest.mark.parametrize("kind", [RuntimeError, TypeError, UsageError])
def test_errors_are_those_that_scripts_catch(here_on_host, kind: type[Exception]) -> None:
    executor = submitit.AutoExecutor(folder="logs")
    with pytest.raises(kind):
        executor.submit(7)
    with pytest.raises(kind):
        submitit.AutoExecutor(folder="logs", slurm_foobar=22)
    with executor.batch(), pytest.raises(kind, match=r"with executor\.batch"):
        executor.update_parameters(timeout_min=1)


# --- without a cluster ---


def test_command_that_fails_shows_what_it_wrote(capfd) -> None:
    command = submitit.helpers.CommandFunction(["sh", "-c", "echo it failed >&2; exit 3"], verbose=False)
    with pytest.raises(RuntimeError, match=r"exit status 3\.\nit failed") as caught:
        command()
    assert isinstance(caught.value, subprocess.CalledProcessError) and caught.value.stderr == "it failed\n"
    assert capfd.readouterr().err == "it failed\n"
    assert submitit.helpers.CommandFunction(["echo"], verbose=False)("text") == "text"


def test_delayed_submission_is_called_once(tmp_path) -> None:
    delayed = submitit.helpers.DelayedSubmission(lambda number: [number], 4)
    assert not delayed.done() and delayed.result() is delayed.result() and delayed.done()
    delayed.dump(tmp_path / "delayed.pkl")
    loaded = submitit.helpers.DelayedSubmission.load(tmp_path / "delayed.pkl")
    assert loaded.done() and loaded.result() == [4]


def test_checkpointable_class_without_a_call_is_refused() -> None:
    class Nothing(submitit.helpers.Checkpointable):
        pass

    with pytest.raises(TypeError, match="Nothing needs a method __call__"):
        Nothing()


def test_clean_environment(monkeypatch) -> None:
    hidden = ("PAI_JOB_NAME", "SLURM_JOB_ID", "SUBMITIT_EXECUTOR", "MASTER_PORT", "OWN")
    with submitit.helpers.environment_variables(PAI_REST_SERVER_URI="u", **dict.fromkeys(hidden, 1)):
        with submitit.helpers.clean_env(extra_names=["OWN"]):
            assert not any(name in os.environ for name in hidden)
            assert os.environ["PAI_REST_SERVER_URI"] == "u"
        assert all(os.environ[name] == "1" for name in hidden)
    assert not any(name in os.environ for name in ("SLURM_JOB_ID", "OWN"))
