"""Scripts written for submitit run with one changed import."""

import asyncio
import os
import sys
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

import openpaisdk
import openpaisdk.functions as submitit
from paiprotocol.errors import Conflict, UsageError
from support.server_fixture import eventually

TIMEOUT_S = 120
LIMIT_S = 15
"""A time limit within which a task starts even on a busy machine, also in a container."""
STEPS = 160
"""Of 0.1 s each: more than the limit allows, less than twice that."""


def test_first_example(here) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    executor = submitit.AutoExecutor(folder="log_test")
    executor.update_parameters(timeout_min=1, slurm_partition="default", cpus_per_task=1, mem_gb=0.25)
    job = executor.submit(add, 5, 7)
    assert job.job_id
    assert job.result() == 12
    assert job.results() == [12] and job.done() and job.state == "SUCCEEDED"
    job.wait()
    assert job.stdout() == "" and job.paths.result_pickle.name == "result.pickle"


def test_arrays_and_batches(here) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    executor = submitit.AutoExecutor(folder="log_test")
    executor.update_parameters(slurm_array_parallelism=2)
    jobs = executor.map_array(add, [1, 2, 3], [10, 20, 30])
    assert [job.result() for job in jobs] == [11, 22, 33]
    jobs = []
    with executor.batch():
        for value in range(3):
            jobs.append(executor.submit(add, value, value))
        jobs.append(executor.submit(str.upper, "other functions, too"))
        with pytest.raises(UsageError, match="in a batch"):
            jobs[0].job  # noqa: B018
    assert [job.result() for job in jobs] == [0, 2, 4, "OTHER FUNCTIONS, TOO"]
    assert len({job.job for job in jobs}) == 1
    assert {job.result() for job in submitit.helpers.as_completed(jobs[:3])} == {0, 2, 4}


def test_several_tasks_for_one_call(here) -> None:
    def rank() -> tuple[int, int]:
        environment = submitit.JobEnvironment()
        return environment.global_rank, environment.num_tasks

    executor = submitit.AutoExecutor(folder="log_test")
    executor.update_parameters(tasks_per_node=2, timeout_min=1, cpus_per_task=1)
    job = executor.submit(rank)
    assert job.results() == [(0, 2), (1, 2)] and job.result() == (0, 2)
    assert job.task(1).result() == (1, 2) and job.num_tasks == 2


def test_command_as_function(here) -> None:
    job = submitit.AutoExecutor(folder="x").submit(submitit.helpers.CommandFunction(["echo", "-n"]), "hi")
    assert job.result() == "hi"


def test_executor_of_the_standard_library(here) -> None:
    with submitit.Executor(cpu=1) as executor:
        future = executor.submit(pow, 2, 5)
        assert list(executor.map(max, [1, 5], [4, 2])) == [4, 5]
    assert future.done() and future.result() == 32
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(pow, 2, 5)


@pytest.mark.slow
def test_calls_continue_after_their_time_limit(here) -> None:
    """An object with a checkpoint, and a plain function that saves its state: both run at the same time."""

    class Counter(submitit.helpers.Checkpointable):
        def __init__(self) -> None:
            self.count = 0
            self.starts = 0

        def __call__(self, until: int) -> tuple[int, int]:
            self.starts += 1
            while self.count < until:
                self.count += 1
                time.sleep(0.1)
            return self.count, self.starts

    def count(until: int) -> tuple[int, int]:
        from openpaisdk import runtime

        state = runtime.saved_state({"count": 0, "starts": 0})
        state["starts"] += 1
        runtime.save_before_stop(lambda: state)
        while state["count"] < until:
            state["count"] += 1
            time.sleep(0.1)
        return state["count"], state["starts"]

    executor = submitit.AutoExecutor(folder="x")
    executor.update_parameters(timeout_min=LIMIT_S / 60)
    calls = [
        executor.submit(Counter(), STEPS),
        submitit.Executor(timeout=LIMIT_S).submit(count, STEPS),
    ]
    for call in calls:
        counted, starts = call.result(TIMEOUT_S)
        assert counted == STEPS and starts >= 2


def test_unknown_parameter_is_rejected(here) -> None:
    with pytest.raises(UsageError, match="Jobs have no parameter 'tasks_per_nod'"):
        submitit.AutoExecutor(folder="x").update_parameters(tasks_per_nod=2)


# --- what submitit's documentation does ---


def test_options_of_other_kinds_of_clusters_are_ignored(here) -> None:
    """As in submitit: those of Slurm have no effect elsewhere. A partition may be a virtual cluster."""
    executor = submitit.AutoExecutor(folder="log_test/%j", slurm_max_num_timeout=3)
    with pytest.warns(UserWarning, match="has no virtual cluster 'no-such': slurm_partition has no effect"):
        executor.update_parameters(timeout_min=4, slurm_partition="no-such", slurm_qos="high", local_setup=[])
    assert executor.submit(max, 5, 7).result(TIMEOUT_S) == 7
    assert executor.cluster == "local"


@pytest.mark.parametrize("kind", [None, "local", "debug", "slurm"])
def test_kinds_of_clusters_that_submitit_has(here_on_host, kind) -> None:
    executor = submitit.AutoExecutor(folder="x", cluster=kind)
    jobs = [executor.submit(abs, -number) for number in (1, 2)]
    assert [job.result(TIMEOUT_S) for job in jobs] == [1, 2]
    assert (
        jobs[0].exception(TIMEOUT_S) is None
        and jobs[0].task(0).result(TIMEOUT_S) == 1
        and jobs[0].done(force_check=True)
    )
    assert not jobs[0].cancel(check=False)


def test_many_jobs_have_the_name_of_the_executor(here_on_host) -> None:
    executor = submitit.AutoExecutor(folder="x")
    executor.update_parameters(name="training")
    jobs = [executor.submit(abs, -number) for number in (1, 2)]
    assert [job.result(TIMEOUT_S) for job in jobs] == [1, 2]
    assert all(job.job_id.startswith("training_") for job in jobs) and jobs[0].job_id != jobs[1].job_id


def test_coroutines(here_on_host) -> None:
    executor = submitit.AutoExecutor(folder="x")

    async def main() -> tuple[int, list[int], set[int]]:
        first = await executor.submit(abs, -1).awaitable().result()
        jobs = executor.map_array(abs, [-2, -3])
        found = {await result for result in asyncio.as_completed([j.awaitable().result() for j in jobs])}
        await jobs[0].awaitable().wait(poll_interval=0.1)
        return first, await jobs[0].awaitable().results(poll_interval=0.1), found

    assert asyncio.run(asyncio.wait_for(main(), TIMEOUT_S)) == (1, [2], {2, 3})


def test_error_in_a_batch_cancels_the_whole_submission(here_on_host) -> None:
    executor = submitit.AutoExecutor(folder="x")
    with pytest.raises(ZeroDivisionError), executor.batch():
        job = executor.submit(abs, -1)
        with pytest.raises(UsageError, match="in a batch cannot be changed"):
            executor.update_parameters(timeout_min=1)
        1 / 0  # noqa: B018
    with pytest.raises(CancelledError):
        job.result(TIMEOUT_S)
    assert executor.submit(abs, -2).result(TIMEOUT_S) == 2


def test_functions_without_arguments_as_an_array(here) -> None:
    jobs = submitit.AutoExecutor(folder="x").submit_array([lambda: 1, lambda: "two"])
    assert [job.result(TIMEOUT_S) for job in jobs] == [1, "two"]


@pytest.mark.parametrize("limit", [0, 1])
def test_calls_of_an_array_are_independent_programs(here_on_host, limit: int) -> None:
    """Libraries for distributed training must not wait for the other calls; ``limit`` 1: in a shared task."""

    def environment() -> tuple[object, ...]:
        job = submitit.JobEnvironment()
        torch = submitit.helpers.TorchDistributedEnvironment().export()
        variables = [os.environ[name] for name in ("RANK", "WORLD_SIZE")]
        return (job.array_task_id, job.num_tasks, job.global_rank, torch.world_size, *variables)

    executor = submitit.AutoExecutor(folder="x")
    executor.update_parameters(slurm_array_parallelism=limit)
    jobs = executor.submit_array([environment] * 4)
    assert jobs.results(TIMEOUT_S) == [(str(index), 1, 0, 1, "0", "1") for index in range(4)]


def test_map_of_an_executor_gives_each_result_when_it_is_there(here_on_host) -> None:
    def wait_for_file(path: str) -> str:
        while path and not Path(path).exists():
            time.sleep(0.05)
        return path

    gate = str(here_on_host / "gate")
    with submitit.Executor(cpu=1) as executor:
        results = executor.map(wait_for_file, ["", gate], timeout=TIMEOUT_S)
        assert next(results) == ""
        Path(gate).touch()
        assert next(results) == gate


def test_map_of_an_executor_raises_after_the_results_before(here_on_host) -> None:
    with submitit.Executor(cpu=1) as executor:
        results = executor.map(int, ["7", "seven"], timeout=TIMEOUT_S)
        assert next(results) == 7
        with pytest.raises(ValueError, match="seven"):
            next(results)


def test_results_fail_with_the_first_call_that_does(here_on_host) -> None:
    """With a time limit, too: a call that still runs is no reason for a time-out."""

    def fail_or_wait(path: str) -> None:
        if not path:
            raise ZeroDivisionError("failed early")
        while not Path(path).exists():
            time.sleep(0.05)

    gate = str(here_on_host / "gate")
    futures = openpaisdk.map(fail_or_wait, [gate, ""])
    try:
        with pytest.raises(ZeroDivisionError, match="failed early"):
            futures.results(TIMEOUT_S)
        assert not futures[0].done()
    finally:
        Path(gate).touch()


def test_sequence_of_functions_and_the_environment_of_a_job(here) -> None:
    def environment() -> tuple[str, object, int, int]:
        job = submitit.JobEnvironment()
        distributed = submitit.helpers.TorchDistributedEnvironment().export()
        with submitit.helpers.clean_env():
            pass
        return job.job_id, job.array_task_id, distributed.rank, distributed.world_size

    sequence = submitit.helpers.FunctionSequence(verbose=True)
    sequence.add(max, 1, 2)
    sequence.add(environment)
    job: submitit.Job = submitit.LocalExecutor(folder="x").submit(sequence)
    largest, (job_id, array_task, rank, world) = job.result(TIMEOUT_S)
    assert (largest, job_id, array_task, rank, world) == (2, job.job_id, None, 0, 1)
    assert "0 of 2" in job.stdout() and len(sequence) == 2


def test_checkpoint_by_the_longer_name_of_its_method(here_on_host) -> None:
    class Training:
        def __init__(self, starts: int = 0) -> None:
            self.starts = starts

        def __call__(self) -> int:
            print("begun", flush=True)
            while self.starts == 0:
                time.sleep(0.05)
            return self.starts

        def __submitit_checkpoint__(self) -> submitit.helpers.DelayedSubmission:
            return submitit.helpers.DelayedSubmission(type(self)(self.starts + 1))

    job = submitit.AutoExecutor(folder="x").submit(Training())
    eventually(lambda: job.stdout() == "begun\n")
    job._interrupt(timeout=True)
    assert job.result(TIMEOUT_S) == 1


def test_name_that_is_taken_changes_nothing_of_the_other_job(here_on_host) -> None:
    first = openpaisdk.submit(abs, -1, name="taken")
    assert first.result(TIMEOUT_S) == 1
    with pytest.raises(Conflict, match="already has a job called taken"):
        openpaisdk.submit(abs, -2, name="taken")
    assert openpaisdk.Job("taken").select_cluster().resubmit().future().result(TIMEOUT_S) == 1


def test_name_of_a_job_that_the_cluster_deleted(here_on_host) -> None:
    """Its results are still there, and are not those of the new job."""
    old = openpaisdk.map(abs, range(5), limit=1, name="reused")
    assert old.results(TIMEOUT_S) == list(range(5))
    openpaisdk.Job("reused").select_cluster().wait(timeout=TIMEOUT_S, progress=False)
    old[0].cluster.client.delete("reused")
    assert openpaisdk.map(lambda x: x + 10, range(5), limit=1, name="reused").results(TIMEOUT_S) == [
        *range(10, 15)
    ]


def test_environment_of_a_task_in_an_array_of_commands(monkeypatch) -> None:
    task = {
        "PAI_JOB_NAME": "alice~sweep",
        "PAI_CURRENT_TASK_ROLE_NAME": "main",
        "PAI_TASK_ROLE_TASK_COUNT_main": "4",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "2",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    for name, value in task.items():
        monkeypatch.setenv(name, value)
    environment = submitit.JobEnvironment()
    assert (environment.num_tasks, environment.global_rank) == (1, 0)
    assert environment.job_id == "sweep_2"


def test_logs_are_files_in_the_folder_of_the_executor(here_on_host, tmp_path) -> None:
    def speak(word: str) -> None:
        import sys

        print("out", word)
        print("err", word, file=sys.stderr)

    executor = submitit.AutoExecutor(folder=tmp_path / "logs" / "%j")
    single = executor.submit(speak, "\u00e9")
    jobs = [single, *executor.map_array(speak, ["b", "c"])]
    for job, word in zip(jobs, ("\u00e9", "b", "c"), strict=True):
        job.wait(TIMEOUT_S)
        assert job.paths.stdout == tmp_path / "logs" / job.job_id / f"{job.job_id}_0_log.out"
        assert job.paths.stdout.read_text("utf-8") == f"out {word}\n"
        assert job.paths.stderr.read_text("utf-8") == f"err {word}\n"
        assert len(list(job.paths.stdout.parent.iterdir())) == 2
    read = single.paths.stdout
    single.cluster.client.delete(single.job)
    assert single.paths.stdout == read and read.read_text("utf-8") == "out \u00e9\n"
    with pytest.raises(UsageError, match="no folder for its log"):
        openpaisdk.submit(abs, -1).paths.stdout  # noqa: B018


# --- without a cluster ---


def test_monitor_prints_the_states_of_jobs(capsys) -> None:
    ended, failed, cancelled, running = (Future() for _ in range(4))
    ended.set_result(1)
    failed.set_exception(ValueError("x"))
    cancelled.cancel()
    cancelled.set_running_or_notify_cancel()
    running.set_running_or_notify_cancel()
    reports = []

    def report(started: float, count: int, states: dict[str, set[int]]) -> None:
        reports.append((count, dict(states)))
        if not running.done():
            running.set_result(2)

    submitit.helpers.monitor_jobs([ended, failed, cancelled, running], 0.01, custom_logging=report)
    states = {"SUCCEEDED": {0}, "FAILED": {1}, "STOPPED": {2}, "RUNNING": {3}, "DONE": {0, 1, 2}}
    assert reports[0] == (4, states)
    assert reports[-1][1]["DONE"] == {0, 1, 2, 3} and reports[-1][1]["SUCCEEDED"] == {0, 3}
    submitit.helpers.monitor_jobs([ended, failed])
    assert capsys.readouterr().out[8:] == "  2 of 2 calls ended, 1 failed\n"
    submitit.helpers.monitor_jobs([])
    assert capsys.readouterr().out == "There are no calls to wait for.\n"


def test_output_of_a_debug_executor_has_what_programs_use(capfd) -> None:
    def speak() -> None:
        sys.stdout.reconfigure(line_buffering=True)
        print("text", sys.stdout.encoding, sys.stderr.errors, sys.stdout.name)
        sys.stdout.buffer.write(b"bytes\n")

    job = submitit.DebugExecutor().submit(speak)
    job.result()
    said = f"text {sys.stdout.encoding} {sys.stderr.errors} {sys.stdout.name}\n"
    assert job.stdout() == said and capfd.readouterr().out == said + "bytes\n"


def test_debug_executor_calls_in_this_process(tmp_path, capsys) -> None:
    executor = submitit.AutoExecutor(folder=tmp_path, cluster="debug", timeout_min=1)
    assert isinstance(executor, submitit.DebugExecutor)
    with pytest.raises(UsageError, match="no parameter 'no_such'"):
        executor.update_parameters(no_such=1)
    seen = []

    def speak(word: str) -> str:
        print("hear", word)
        seen.append(submitit.JobEnvironment())
        assert seen[-1].num_tasks == 1 and seen[-1].cluster == "debug"
        return seen[-1].job_id

    job = executor.submit(speak, "me")
    assert job.result() == job.job_id and job.results() == [job.job_id] and job.state == "SUCCEEDED"
    assert len(seen) == 1
    assert capsys.readouterr().out == job.stdout() == job.paths.stdout.read_text() == "hear me\n"
    assert job.paths.folder == job.paths.result_pickle.parent == tmp_path
    assert not submitit.JobEnvironment.activated()

    with executor.batch():
        failed = executor.submit(lambda: 1 // 0)
    assert failed.state == "FAILED" and isinstance(failed.exception(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    jobs = executor.map_array(pow, [2, 3], [3, 2])
    assert executor.submit(sum, jobs).result() == 17

    async def later() -> int:
        assert executor.submit(asyncio.sleep, 0, "inside").result() == "inside"
        return await executor.submit(abs, -3) + await job_of(-4).awaitable().result()

    def job_of(number: int) -> submitit.DebugJob:
        return executor.submit(abs, number)

    assert asyncio.run(later()) == 7
    assert executor.submit(asyncio.sleep, 0, "slept").result() == "slept"
    with executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]
