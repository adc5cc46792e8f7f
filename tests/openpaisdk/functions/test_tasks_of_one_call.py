"""Calls that several tasks make together: failures, ranks and nodes, logs, gangs that can never start."""

from __future__ import annotations

import pickle
import sys
import time

import pytest

import openpaisdk
import openpaisdk.functions as submitit
from openpaisdk.client.models import CORES
from openpaisdk.functions.function_cluster import function_cluster
from openpaisdk.functions.task_errors import DependencyFailed, JobNeverStarts, TaskKilled, first_cause
from support.server_fixture import eventually

TIMEOUT_S = 120
SECONDS_UNTIL_REFUSED = 10


def executor_of_two(**parameters: object) -> submitit.AutoExecutor:
    executor = submitit.AutoExecutor(folder="logs/%j")
    executor.update_parameters(**{"tasks_per_node": 2, "cpus_per_task": 1, "mem_gb": 0.125, **parameters})
    return executor


def test_failed_rank_fails_the_call(here_on_host) -> None:
    def fail_in_rank_1() -> str:
        if submitit.JobEnvironment().global_rank == 1:
            raise ValueError("rank 1 failed")
        return "rank 0 returned"

    job = executor_of_two().submit(fail_in_rank_1)
    dependent = openpaisdk.submit(str.upper, job)
    with pytest.raises(ValueError, match="rank 1 failed"):
        job.result(TIMEOUT_S)
    with pytest.raises(ValueError, match="rank 1 failed"):
        job.results(TIMEOUT_S)
    assert isinstance(job.exception(), ValueError) and job.done()
    assert isinstance(job.task(1).exception(), ValueError)
    eventually(lambda: job.state == "FAILED")
    again = openpaisdk.Job(job.job_id).select_cluster().future()
    assert isinstance(again.exception(TIMEOUT_S), ValueError) and again.num_tasks == 2
    assert isinstance(dependent.exception(TIMEOUT_S), DependencyFailed)
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        job.task(2)


def test_cause_is_the_error_of_the_task_that_failed_first() -> None:
    """The cluster ends the other tasks of a gang: their errors say nothing."""
    ended = TaskKilled("ended with the job", exit_code=-220)
    killed = TaskKilled("killed", exit_code=137)
    raised = ValueError("raised")
    assert first_cause([ended, killed]) is killed
    assert first_cause([ended, killed, raised]) is raised
    assert first_cause([ended]) is ended


@pytest.mark.parametrize(
    ("nodes", "tasks_per_node", "ranks", "counts", "torch"),
    [
        (1, 2, [(0, 0, 0), (1, 1, 0)], (2, 1, 1), [(2, "0", "0"), (2, "1", "1")]),
        (2, 1, [(0, 0, 0), (1, 0, 1)], (2, 2, 2), [(1, "0", "0"), (1, "0", "1")]),
    ],
)
def test_numbers_of_tasks_and_nodes(here, nodes, tasks_per_node, ranks, counts, torch) -> None:
    def numbers() -> dict[str, object]:
        import os

        job = submitit.JobEnvironment()
        print("out of", job.global_rank)
        print("error of", job.global_rank, file=sys.stderr)
        torch = submitit.helpers.TorchDistributedEnvironment().export()
        return {
            "id": job.job_id,
            "ranks": (job.global_rank, job.local_rank, job.node),
            "counts": (job.num_tasks, job.num_nodes, len(job.hostnames)),
            "torch": (torch.local_world_size, os.environ["LOCAL_RANK"], os.environ["RANK"]),
        }

    executor = executor_of_two(nodes=nodes, tasks_per_node=tasks_per_node)
    job = executor.submit(numbers)
    found = job.results(TIMEOUT_S)
    assert [one["ranks"] for one in found] == ranks
    assert [one["torch"] for one in found] == torch
    assert {one["counts"] for one in found} == {counts} and {one["id"] for one in found} == {job.job_id}
    assert job.stdout() == "out of 0\nout of 1\n" and job.stderr() == "error of 0\nerror of 1\n"
    assert job.task(1).stdout() == job.task(1).paths.stdout.read_text() == "out of 1\n"
    assert job.task(1).paths.stdout.name == f"{job.job_id}_1_log.out"
    assert sorted(job.logs(follow=True))[-1] == "out of 1\n"
    reopened = pickle.loads(pickle.dumps(job))
    assert reopened.results(TIMEOUT_S) == found and reopened.job_id == job.job_id
    executor.update_parameters(tasks_per_node=1, nodes=1)
    assert executor.submit(abs, -1).results(TIMEOUT_S) == [1]


def test_items_of_an_array_have_several_tasks_each(here_on_host) -> None:
    def rank_of(item: str) -> tuple[str, int, int]:
        job = submitit.JobEnvironment()
        return item, job.local_rank, job.num_tasks

    executor = executor_of_two(slurm_array_parallelism=1)
    jobs = executor.map_array(rank_of, ["a", "b"])
    with executor.batch():
        jobs.append(executor.submit(rank_of, "c"))
    assert [job.results(TIMEOUT_S) for job in jobs] == [[(item, 0, 2), (item, 1, 2)] for item in "abc"]
    assert len({job.job_id for job in jobs}) == 3


def test_cancelled_call_of_several_tasks(here_on_host) -> None:
    job = executor_of_two().submit(time.sleep, 600)
    eventually(job.running)
    assert job.task(1).cancel() and job.done()
    with pytest.raises(submitit.TaskError, match="was stopped on request"):
        job.result(TIMEOUT_S)


def test_cancelled_array_stops_the_jobs_of_all_its_items(here_on_host) -> None:
    jobs = executor_of_two().map_array(time.sleep, [600, 600])
    assert jobs.cancel() and all(job.done() for job in jobs)
    client = function_cluster(None).client
    eventually(lambda: [client.job(job.job).state for job in jobs] == ["STOPPED", "STOPPED"])


def test_refused_item_of_an_array_stops_those_before_it(here_on_host) -> None:
    executor = executor_of_two(max_pickle_size_gb=0.001)
    with pytest.raises(ValueError, match="max_pickle_size_gb"):
        executor.map_array(time.sleep, [600, "x" * (1 << 21)])
    client = function_cluster(None).client
    eventually(lambda: not [job for job in client.jobs(state="WAITING,RUNNING") if "sleep" in job.name])


def test_limited_array_that_can_never_start_says_so_for_each_item(here_on_host) -> None:
    executor = executor_of_two(cpus_per_task=100_000, slurm_array_parallelism=1)
    for job in executor.map_array(abs, [1, 2]):
        assert isinstance(job.exception(TIMEOUT_S), JobNeverStarts)


def test_gang_that_can_never_start_says_so_at_once(here_on_host) -> None:
    cores = int(function_cluster(None).client.virtual_clusters()[0].total(*CORES) or 0)
    began = time.monotonic()
    executor = executor_of_two(nodes=2, tasks_per_node=3, cpus_per_task=cores)
    job = executor.submit(abs, -1)
    assert job.job_id
    with pytest.raises(JobNeverStarts) as caught:
        job.result()
    assert time.monotonic() - began < SECONDS_UNTIL_REFUSED
    assert f"asks for {6 * cores} cores" in str(caught.value)
    assert f"at most {cores} core" in str(caught.value)
    assert "6 tasks start together: use fewer (nodes, tasks_per_node)" in caught.value.hint
    assert job.state == job.task(5).state == "FAILED" and job.num_tasks == 6
