"""Usage in Prometheus' text format. Metrics of tasks have the names and labels that OpenPAI gives them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from paicluster.metrics.exposition import Sample, family
from paicluster.metrics.usage import MeasuredTask, Usage
from paicluster.metrics.usage_sampler import TaskSample, UsageSample

# Tasks in one scrape: each has several series, which Prometheus keeps for weeks.
MAX_TASKS = 1000
_MB = 1 << 20
_GAUGES = (
    ("cpu_cores", "Cores in use", "cpu"),
    ("memory_bytes", "Memory in use", "memory"),
    ("storage_read_bytes_per_second", "Bytes read from storage", "read"),
    ("storage_written_bytes_per_second", "Bytes written to storage", "write"),
    ("gpus", "Sum of the GPUs' shares of busy time", "gpu"),
    ("gpu_memory_bytes", "GPU memory in use", "gpu_memory"),
)


def usage_lines(sample: UsageSample, *, max_tasks: int = MAX_TASKS) -> Iterator[str]:
    nodes = {name: usage for name, (usage, _) in sample.nodes.items()}
    yield from _gauges("node", "of each node", "node", nodes)
    yield from _gauges(
        "virtual_cluster", "of each virtual cluster", "virtual_cluster", sample.virtual_clusters
    )
    yield from _gauges("server", "of the server itself", "", {"": sample.server} if sample.time_ms else {})
    yield from _task_lines(sample, max_tasks)


def _gauges(prefix: str, of: str, label: str, usages: dict[str, Usage]) -> Iterator[str]:
    for name, text, column in _GAUGES:
        samples = _known(
            ({label: key} if label else {}, getattr(usage, column)) for key, usage in usages.items()
        )
        yield from family(f"paicluster_{prefix}_used_{name}", "gauge", f"{text}, {of}.", samples)


def _task_lines(sample: UsageSample, max_tasks: int) -> Iterator[str]:
    exported = sample.tasks[:max_tasks]
    omitted = len(sample.tasks) - len(exported)
    yield from family(
        "paicluster_tasks_not_exported", "gauge", "Running tasks beyond the limit.", [("", {}, omitted)]
    )

    def gauge(name: str, text: str, values: Iterable[tuple[MeasuredTask, float]]) -> Iterator[str]:
        return family(name, "gauge", text, _known((_task_labels(task), value) for task, value in values))

    def each(column: str) -> Iterator[tuple[MeasuredTask, float]]:
        return ((sample.task, getattr(sample.usage, column)) for sample in exported)

    yield from gauge(
        "task_cpu_percent", "CPU use, 100 for one core.", ((task, 100 * cpu) for task, cpu in each("cpu"))
    )
    yield from gauge("task_mem_usage_byte", "Memory in use.", each("memory"))
    yield from gauge(
        "task_mem_usage_percent",
        "Memory in use, of the requested memory.",
        ((task, 100 * memory / (task.memory_mb * _MB)) for task, memory in each("memory") if task.memory_mb),
    )
    yield from gauge(
        "task_mem_limit_byte",
        "Requested memory.",
        ((one.task, one.task.memory_mb * _MB) for one in exported if one.task.memory_mb),
    )
    yield from family(
        "task_gpu_percent",
        "gauge",
        "Busy time of each GPU of the task.",
        _gpu_samples(exported, memory=False),
    )
    yield from family(
        "task_gpu_mem_percent",
        "gauge",
        "Memory in use of each GPU of the task.",
        _gpu_samples(exported, memory=True),
    )


def _gpu_samples(tasks: Iterable[TaskSample], *, memory: bool) -> Iterator[Sample]:
    for sample in tasks:
        for gpu, reading in sample.gpus.items():
            share = reading.memory_bytes / max(1, reading.memory_total_bytes) if memory else reading.busy
            yield "", {**_task_labels(sample.task), "minor_number": str(gpu)}, 100 * share


def _task_labels(task: MeasuredTask) -> dict[str, str]:
    return {
        "username": task.user,
        "job_name": f"{task.user}~{task.job}",
        "role_name": task.role,
        "task_index": str(task.index),
        "virtual_cluster": task.vc,
    }


def _known(values: Iterable[tuple[dict[str, str], float]]) -> Iterator[Sample]:
    return (("", labels, value) for labels, value in values if not math.isnan(value))
