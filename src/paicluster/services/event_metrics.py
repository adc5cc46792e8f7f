"""Metrics in event files of TensorBoard, read by a worker process of its own for each task."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from paicluster.logs import event_file_worker
from paicluster.logs.event_file_worker import MAX_WALL_S, PREFIX, EventMetrics, EventSeries
from paicluster.store.metric_rows import MetricGroup, MetricValues

log = logging.getLogger("paicluster.metrics")

_NOTHING = EventMetrics(0, [])

_decode = msgspec.json.Decoder(EventMetrics).decode


# Gets the worker, to end it early.
OnStart = Callable[["subprocess.Popen[bytes]"], None]

NO_EVENT_METRICS = MetricGroup(PREFIX, {})


def _ignore(worker: subprocess.Popen[bytes]) -> None:
    """Let it run to its end."""


def has_event_metric(names: Collection[str]) -> bool:
    """Whether one of these metrics may be in event files."""
    return any(name.startswith(PREFIX) for name in names)


def event_metrics(folder: Path, on_start: OnStart = _ignore) -> MetricGroup | None:
    """Summaries of the metrics in the event files of a task; None: they exceed the limits of the worker."""
    found = _run_worker(folder, 0, (), on_start)
    return None if found is None else MetricGroup(PREFIX, {one.name: _values(one) for one in found.series})


def read_in_worker(folder: Path, points: int, names: Collection[str] = ()) -> EventMetrics:
    """Nothing of files that exceed the limits of the worker."""
    found = _run_worker(folder, points, names)
    return _NOTHING if found is None else found


def _run_worker(
    folder: Path, points: int, names: Collection[str], on_start: OnStart = _ignore
) -> EventMetrics | None:
    limits = (str(points), str(event_file_worker.MAX_CPU_S), str(MAX_WALL_S))
    command = [sys.executable, "-P", "-m", event_file_worker.__name__, str(folder), *limits]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as worker:
            on_start(worker)
            try:
                output, _ = worker.communicate(msgspec.json.encode(list(names)), timeout=MAX_WALL_S)
            except BaseException:
                worker.kill()
                raise
        if worker.returncode == 0:
            return _decode(output)
        reason = f"the process that read them ended with {worker.returncode}"
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        reason = str(error)
    log.warning("Event files of a task in %s are not read: %s", folder, reason)
    return None


def _values(one: EventSeries) -> MetricValues:
    last = float(one.last)
    return MetricValues(
        one.count,
        None if last != last else last,
        one.last_step,
        None if one.min is None else float(one.min),
        one.min_step,
        None if one.max is None else float(one.max),
        one.max_step,
    )
