"""Scripts written for submitit run with one changed import."""

import time

import pytest

import openpaisdk.functions as submitit
from openpaisdk.errors import UsageError

TIMEOUT_S = 120
LIMIT_S = 6
"""A time limit within which a task starts even on a busy machine, also in a container."""
STEPS = 70
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
def test_function_continues_from_its_checkpoint(here) -> None:
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

    executor = submitit.AutoExecutor(folder="x")
    executor.update_parameters(timeout_min=LIMIT_S / 60)
    count, starts = executor.submit(Counter(), STEPS).result(TIMEOUT_S)
    assert count == STEPS and starts >= 2


@pytest.mark.slow
def test_plain_function_saves_its_state(here) -> None:
    def count(until: int) -> tuple[int, int]:
        from openpaisdk import runtime

        state = runtime.saved_state({"count": 0, "starts": 0})
        state["starts"] += 1
        runtime.save_before_stop(lambda: state)
        while state["count"] < until:
            state["count"] += 1
            time.sleep(0.1)
        return state["count"], state["starts"]

    executor = submitit.Executor(timeout=LIMIT_S)
    counted, starts = executor.submit(count, STEPS).result(TIMEOUT_S)
    assert counted == STEPS and starts >= 2


def test_unknown_parameter_is_rejected(here) -> None:
    with pytest.raises(UsageError, match="Jobs have no parameter 'tasks_per_nod'"):
        submitit.AutoExecutor(folder="x").update_parameters(tasks_per_nod=2)
