"""Sampler of usage: reads it at an interval, keeps the current values and adds them to the history."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.metrics.usage import (
    NOTHING,
    GpuReading,
    MeasuredTask,
    NodeReading,
    Usage,
    UsageCounters,
    UsageReading,
    total,
    usage_between,
)
from paicluster.metrics.usage_history import (
    SERVER_KEY,
    SeriesKey,
    UsageHistory,
    job_key,
    node_key,
    task_key,
    virtual_cluster_key,
)

log = logging.getLogger("paicluster.usage")

DEFAULT_INTERVAL_S = 5.0
# Part of one core that sampling may take: a reading that costs more is followed by a longer pause.
MAX_SHARE = 0.01
# Tasks of one job that have series of their own; of larger jobs the others are in the job's series.
MAX_TASKS_OF_JOB = 64
_FIRST_INTERVAL_S = 1.0
_FLUSH_INTERVAL_S = 60.0
# What a task has used since its start is divided by at least this.
_SHORTEST_S = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class TaskSample:
    """Usage of a task, and its GPUs by number."""

    task: MeasuredTask
    usage: Usage
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What is used now. ``interval_s``: how long it was measured."""

    time_ms: int = 0
    interval_s: float = 0.0
    tasks: Sequence[TaskSample] = ()
    nodes: dict[str, tuple[Usage, NodeReading]] = field(default_factory=dict)
    virtual_clusters: dict[str, Usage] = field(default_factory=dict)
    server: Usage = NOTHING

    def jobs(self) -> dict[int, list[TaskSample]]:
        """Tasks by job."""
        by_job: dict[int, list[TaskSample]] = {}
        for sample in self.tasks:
            by_job.setdefault(sample.task.job_id, []).append(sample)
        return by_job


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    usage: UsageReading
    server: UsageCounters


class UsageSampler:
    """Samples all running tasks, the nodes, the virtual clusters and the server.

    ``read`` asks the engines; ``running_tasks`` and ``virtual_clusters`` are called on the event loop.
    """

    def __init__(
        self,
        history: UsageHistory,
        read: Callable[[Sequence[str]], Awaitable[UsageReading]],
        running_tasks: Callable[[], Sequence[MeasuredTask]],
        virtual_clusters: Callable[[], Iterable[str]],
        interval_s: float | None = DEFAULT_INTERVAL_S,
        *,
        max_tasks_of_job: int = MAX_TASKS_OF_JOB,
    ) -> None:
        """``interval_s`` is None: nothing is sampled."""
        self.history = history
        self.current = UsageSample()
        self.interval_s = interval_s
        self._read = read
        self._running_tasks = running_tasks
        self._virtual_clusters = virtual_clusters
        self._max_tasks_of_job = max_tasks_of_job
        self._before: _Reading | None = None
        self._flushed_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def idle(cls) -> UsageSampler:
        """A sampler that reads nothing."""

        async def read(uids: Sequence[str]) -> UsageReading:
            return UsageReading()

        return cls(UsageHistory(), read, list, list, None)

    async def start(self) -> None:
        if self.interval_s is None:
            return
        await asyncio.to_thread(self.history.open)
        self._task = asyncio.create_task(self._run(self.interval_s))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await asyncio.to_thread(self.history.close)

    async def _run(self, interval_s: float) -> None:
        # The second reading is the first with a result.
        interval_s, later_s = min(interval_s, _FIRST_INTERVAL_S), interval_s
        while True:
            cost_s = 0.0
            try:
                cost_s = await self.sample()
            except Exception:
                log.exception("usage could not be sampled")
            await asyncio.sleep(pause_after(cost_s, interval_s))
            interval_s = later_s

    async def sample(self) -> float:
        """Read once and record what was used since the reading before. Returns what the reading cost."""
        tasks = self._running_tasks()
        reading = await self._read([task.uid for task in tasks])
        now = _Reading(time.monotonic(), reading, _read_server())
        before, self._before = self._before, now
        if before is None or now.at_s <= before.at_s:
            return reading.cost_s
        started_s = time.thread_time()
        known = {task_sample.task.uid: task_sample.usage for task_sample in self.current.tasks}
        self.current = _compare(before, now, tasks, self._virtual_clusters(), known)
        cost_s = reading.cost_s + time.thread_time() - started_s
        return cost_s + await asyncio.to_thread(self._record, self.current)

    def _record(self, sample: UsageSample) -> float:
        started_s = time.thread_time()
        self.history.append(sample.time_ms, _series_of(sample, self._max_tasks_of_job))
        if time.monotonic() - self._flushed_s >= _FLUSH_INTERVAL_S:
            self._flushed_s = time.monotonic()
            self.history.flush(sample.time_ms)
        return time.thread_time() - started_s


def pause_after(cost_s: float, interval_s: float) -> float:
    """Seconds until the next reading."""
    return max(interval_s, cost_s / MAX_SHARE)


def _read_server() -> UsageCounters:
    used = os.times()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return UsageCounters(used.user + used.system, resident * _PAGE_BYTES, 0, 0)


def _compare(
    before: _Reading,
    now: _Reading,
    tasks: Sequence[MeasuredTask],
    virtual_clusters: Iterable[str],
    known: Mapping[str, Usage],
) -> UsageSample:
    """What was used from one reading to the next; ``known``: what tasks used up to the reading before."""
    elapsed_s = now.at_s - before.at_s
    now_ms = int(time.time() * 1000)
    samples = []
    for task in tasks:
        counters = now.usage.tasks.get(task.uid)
        if counters is None:
            continue
        node = now.usage.nodes.get(task.node)
        gpus = counters.gpus
        if node is not None:
            gpus = {gpu: node.gpus[gpu] for gpu in task.gpus if gpu in node.gpus}
        first = before.usage.tasks.get(task.uid)
        task_s = elapsed_s
        if first is None:
            first = UsageCounters(0.0, 0, 0, 0)
            task_s = max(_SHORTEST_S, (now_ms - task.started_ms) / 1000)
        elif counters.at_s is not None and first.at_s is not None:
            task_s = counters.at_s - first.at_s
        if task_s <= 0:
            # Not counted again since: a task on another machine reports at its own pace.
            usage = known.get(task.uid, NOTHING._replace(memory=float(counters.memory_bytes)))
        else:
            usage = usage_between(first, counters, task_s, gpus.values())
        samples.append(TaskSample(task, usage, gpus))
    of_cluster: dict[str, list[Usage]] = {name: [] for name in virtual_clusters}
    for sample in samples:
        of_cluster.setdefault(sample.task.vc, []).append(sample.usage)
    return UsageSample(
        time_ms=now_ms,
        interval_s=elapsed_s,
        tasks=samples,
        nodes={
            name: (
                usage_between(
                    before.usage.nodes[name].counters, node.counters, elapsed_s, node.gpus.values()
                ),
                node,
            )
            for name, node in now.usage.nodes.items()
            if name in before.usage.nodes
        },
        virtual_clusters={name: total(usages) for name, usages in of_cluster.items()},
        server=usage_between(before.server, now.server, elapsed_s),
    )


def _series_of(sample: UsageSample, max_tasks_of_job: int) -> dict[SeriesKey, Usage]:
    series = {node_key(name): usage for name, (usage, _) in sample.nodes.items()}
    series[SERVER_KEY] = sample.server
    series.update((virtual_cluster_key(name), usage) for name, usage in sample.virtual_clusters.items())
    for job_id, tasks in sample.jobs().items():
        series[job_key(job_id)] = total(task_sample.usage for task_sample in tasks)
    counts: Counter[int] = Counter()
    for task_sample in sample.tasks:
        counts[task_sample.task.job_id] += 1
        if counts[task_sample.task.job_id] <= max_tasks_of_job:
            series[task_key(task_sample.task.job_id, task_sample.task.role, task_sample.task.index)] = (
                task_sample.usage
            )
    return series
