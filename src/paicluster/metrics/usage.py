"""Usage of resources: what engines read (`UsageReading`), and what follows from two readings (`Usage`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU now. ``busy``: the share of time in which it computed, 0 to 1."""

    busy: float
    memory_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True)
class UsageCounters:
    """CPU time and bytes since a start, and the memory that is used now.

    ``at_s``: when that was, by a clock of its own; None: at the time of the reading. ``gpus``: those of a
    task on a node that is not measured.
    """

    cpu_s: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int
    at_s: float | None = None
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeReading:
    counters: UsageCounters
    gpus: Mapping[int, GpuReading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageReading:
    """Running attempts by uid and nodes by name. ``cost_s``: processor time that the reading took."""

    tasks: Mapping[str, UsageCounters] = field(default_factory=dict)
    nodes: Mapping[str, NodeReading] = field(default_factory=dict)
    cost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A running task attempt, with what it requested."""

    uid: str
    job_id: int
    user: str
    job: str
    vc: str
    role: str
    index: int
    node: str
    started_ms: int = 0
    cpu: float = 0
    memory_mb: int = 0
    gpus: tuple[int, ...] = ()


class Usage(NamedTuple):
    """Usage in an interval: cores, bytes, bytes per second, busy GPUs, bytes of GPU memory.

    NaN: not measured, as GPUs where there are none.
    """

    cpu: float
    memory: float
    read: float
    write: float
    gpu: float = math.nan
    gpu_memory: float = math.nan


NOTHING = Usage(0.0, 0.0, 0.0, 0.0)


def usage_between(
    before: UsageCounters, after: UsageCounters, elapsed_s: float, gpus: Iterable[GpuReading] = ()
) -> Usage:
    """Usage from one reading to the next. A counter that went back, as after a new start, counts as 0."""

    def rate(first: float, last: float) -> float:
        return max(0.0, last - first) / elapsed_s

    readings = list(gpus)
    return Usage(
        rate(before.cpu_s, after.cpu_s),
        float(after.memory_bytes),
        rate(before.read_bytes, after.read_bytes),
        rate(before.written_bytes, after.written_bytes),
        sum(gpu.busy for gpu in readings) if readings else math.nan,
        float(sum(gpu.memory_bytes for gpu in readings)) if readings else math.nan,
    )


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of usages. A value that none of them has is NaN."""
    columns = list(zip(*usages, strict=True))
    if not columns:
        return NOTHING
    return Usage(*(_sum_known(column) for column in columns))


def _sum_known(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) if known else math.nan
