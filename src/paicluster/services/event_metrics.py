"""Metrics in event files of TensorBoard, read by a worker process of its own for each task."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from paicluster.logs import event_file_worker
from paicluster.logs.event_file_worker import EventMetrics, EventSeries, event_files_size
from paicluster.store.metric_rows import MetricValues

log = logging.getLogger("paicluster.metrics")

# The worker's processor time is limited, but the machine may be overloaded.
_TIMEOUT_S = 60.0
_NOTHING = EventMetrics(0, [])

_decode = msgspec.json.Decoder(EventMetrics).decode


def event_values(folder: Path) -> Mapping[str, MetricValues]:
    """Summaries of the metrics in the event files of a task; most tasks have none."""
    if not event_files_size(folder):
        return {}
    return {one.name: _values(one) for one in read_in_worker(folder, 0).series}


def read_in_worker(folder: Path, points: int, names: Collection[str] = ()) -> EventMetrics:
    """Nothing of files that exceed the limits of the worker."""
    limits = (str(points), str(event_file_worker.MAX_CPU_S))
    command = [sys.executable, "-P", "-m", event_file_worker.__name__, str(folder), *limits]
    try:
        done = subprocess.run(
            command,
            input=msgspec.json.encode(list(names)),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0:
            return _decode(done.stdout)
        reason = f"the process that read them ended with {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        reason = str(error)
    log.warning("Event files of a task in %s are not read: %s", folder, reason)
    return _NOTHING


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
