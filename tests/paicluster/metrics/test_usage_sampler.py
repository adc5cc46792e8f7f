"""The sampler with scripted readings: rates, sums, its own cost, bounds."""

import asyncio
import math
from collections.abc import Sequence

import pytest

from paicluster.metrics.usage import (
    GpuReading,
    MeasuredTask,
    NodeReading,
    Usage,
    UsageCounters,
    UsageReading,
    total,
    usage_between,
)
from paicluster.metrics.usage_exposition import usage_lines
from paicluster.metrics.usage_history import UsageHistory, job_key, task_key
from paicluster.metrics.usage_sampler import MAX_TASKS_OF_JOB, UsageSampler, pause_after

GPU = GpuReading(0.5, 4 << 30, 16 << 30)


def task(index: int = 0, job_id: int = 1, gpus: tuple[int, ...] = ()) -> MeasuredTask:
    return MeasuredTask(
        f"uid{index}", job_id, "alice", "train", "default", "worker", index, "node1", gpus=gpus
    )


async def sampled(tasks: Sequence[MeasuredTask], max_tasks_of_job: int = MAX_TASKS_OF_JOB) -> UsageSampler:
    """A sampler after two readings, in which every task used one byte and the node has one GPU."""

    async def read(uids: Sequence[str]) -> UsageReading:
        node = NodeReading(UsageCounters(1.0, 1, 0, 0), {0: GPU})
        return UsageReading({uid: UsageCounters(1.0, 1, 0, 0) for uid in uids}, {"node1": node})

    sampler = UsageSampler(
        UsageHistory(),
        read,
        lambda: tasks,
        lambda: ["default", "empty"],
        max_tasks_of_job=max_tasks_of_job,
    )
    await sampler.sample()
    await asyncio.sleep(0.001)
    await sampler.sample()
    return sampler


def test_rates_are_differences_by_time():
    before, after = UsageCounters(10.0, 5, 100, 0), UsageCounters(12.0, 7, 300, 50)

    assert usage_between(before, after, 4.0, [GPU, GPU]) == Usage(0.5, 7.0, 50.0, 12.5, 1.0, 8 << 30)


def test_a_counter_that_went_back_counts_as_nothing():
    assert usage_between(UsageCounters(10.0, 0, 9, 9), UsageCounters(1.0, 0, 0, 0), 1.0)[:4] == (0, 0, 0, 0)


def test_a_sum_ignores_what_is_not_measured():
    with_gpu = Usage(1.0, 2.0, 0.0, 0.0, 0.5, 10.0)
    without = Usage(1.0, 2.0, 0.0, 0.0)

    assert total([with_gpu, without]) == Usage(2.0, 4.0, 0.0, 0.0, 0.5, 10.0)
    assert math.isnan(total([without]).gpu)


def test_sampling_never_takes_more_than_a_hundredth_of_a_core():
    assert pause_after(0.010, 5.0) == 5.0
    assert pause_after(0.200, 5.0) == pytest.approx(20.0)


async def test_task_that_reports_at_its_own_pace_has_the_rate_between_its_reports():
    reports = iter([(1.0, 100.0), (3.0, 110.0), (3.0, 110.0), (3.5, 111.0)])

    async def read(uids: Sequence[str]) -> UsageReading:
        cpu_s, at_s = next(reports)
        return UsageReading({uid: UsageCounters(cpu_s, 1, 0, 0, at_s) for uid in uids})

    sampler = UsageSampler(UsageHistory(), read, lambda: [task()], lambda: ["default"])
    rates = []
    for _ in range(4):
        await sampler.sample()
        await asyncio.sleep(0.001)
        rates += [one.usage.cpu for one in sampler.current.tasks]
    # The second of the same reports says nothing new.
    assert rates == [0.2, 0.2, 0.5]


async def test_gpus_of_a_task_are_those_it_was_given():
    sampler = await sampled([task(0, gpus=(0,)), task(1)])

    with_gpu, without = sampler.current.tasks
    assert (with_gpu.usage.gpu, with_gpu.usage.gpu_memory) == (0.5, 4 << 30)
    assert math.isnan(without.usage.gpu)
    lines = list(usage_lines(sampler.current))
    gpu_lines = [line for line in lines if line.startswith(("task_gpu_percent{", "task_gpu_mem_percent{"))]
    assert [line.split()[-1] for line in gpu_lines] == ["50", "25"]
    assert all('minor_number="0"' in line for line in gpu_lines)


async def test_gpus_that_a_task_reports_count_where_its_node_is_not_measured():
    async def read(uids: Sequence[str]) -> UsageReading:
        return UsageReading({uid: UsageCounters(1.0, 1, 0, 0, gpus={3: GPU}) for uid in uids})

    sampler = UsageSampler(UsageHistory(), read, lambda: [task(gpus=(3,))], lambda: ["default"])
    await sampler.sample()
    await asyncio.sleep(0.001)
    await sampler.sample()

    assert sampler.current.virtual_clusters["default"].gpu_memory == 4 << 30
    lines = [line for line in usage_lines(sampler.current) if line.startswith("task_gpu_percent{")]
    assert ['minor_number="3"' in line and line.endswith(" 50") for line in lines] == [True]


async def test_a_virtual_cluster_without_tasks_uses_nothing():
    sampler = await sampled([task()])

    assert sampler.current.virtual_clusters["empty"].cpu == 0
    assert sampler.current.virtual_clusters["default"].memory == 1


async def test_of_a_large_job_only_some_tasks_have_series():
    sampler = await sampled([task(index) for index in range(5)], max_tasks_of_job=2)

    points = [len(sampler.history.points(task_key(1, "worker", index))) for index in range(5)]
    assert points == [1, 1, 0, 0, 0]
    assert sampler.history.points(job_key(1))[0].usage.memory == 5


async def test_a_scrape_has_a_bounded_number_of_tasks():
    sampler = await sampled([task(index) for index in range(5)])
    lines = list(usage_lines(sampler.current, max_tasks=2))

    assert sum(line.startswith("task_cpu_percent{") for line in lines) == 2
    assert "paicluster_tasks_not_exported 3" in lines
