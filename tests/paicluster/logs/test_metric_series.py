"""Series of metrics for plots: thinned with their extremes, by attempt, in bounded memory and time."""

from __future__ import annotations

import itertools
import json
import math
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paicluster.logs.metric_series import MAX_ALL_POINTS, MAX_NAMES, MAX_SEGMENTS, MetricSeries, read_series

_VALUES = st.floats() | st.integers(-(10**6), 10**6)


def write(folder: Path, *lines: dict[str, object] | str) -> Path:
    path = folder / "work/.pai/metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return folder


def losses(*values: float, begin: int = 0) -> list[dict[str, object]]:
    return [{"step": begin + at, "values": {"loss": value}} for at, value in enumerate(values)]


def segments(found: MetricSeries, name: str = "loss", most: int = 10_000) -> list[tuple[int, list[int]]]:
    return [(segment.attempt, points.steps) for segment, points in found.series[name].thinned(most)]


def test_short_series_are_whole(tmp_path: Path) -> None:
    found = read_series(write(tmp_path, *losses(*range(100))), 0, 100)
    ((segment, points),) = found.series["loss"].thinned(found.most)
    assert (segment.attempt, points.steps, points.values) == (1, list(range(100)), list(range(100)))
    assert (found.series["loss"].count, found.has_more) == (100, False)
    assert found.end == (tmp_path / "work/.pai/metrics.jsonl").stat().st_size


def test_long_series_keep_their_ends_and_extremes(tmp_path: Path) -> None:
    values = [math.sin(at) for at in range(100_000)]
    values[34_567], values[76_543] = -3.5, 4.5
    found = read_series(write(tmp_path, *losses(*values)), 0, 2048, clock=lambda: 0.0)
    ((_, points),) = found.series["loss"].thinned(found.most)
    assert 1000 < len(points.steps) <= 2048
    assert (points.steps[0], points.steps[-1]) == (0, 99_999)
    assert {(34_567, -3.5), (76_543, 4.5)} <= set(zip(points.steps, points.values, strict=True))
    assert points.steps == sorted(points.steps)
    # No part of it is left out.
    assert max(b - a for a, b in itertools.pairwise(points.steps)) < 1000


@given(st.lists(_VALUES, min_size=1, max_size=900), st.integers(0, 300))
def test_any_values_keep_their_extremes(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], points: int
) -> None:
    folder = write(tmp_path_factory.mktemp("metrics"), *losses(*values))
    found = read_series(folder, 0, points)
    series = found.series["loss"]
    ((_, kept),) = series.thinned(found.most)
    finite = [value for value in values if math.isfinite(value)]
    assert series.count == len(values)
    assert series.not_finite == len(values) - len(finite)
    assert len(kept.steps) <= max(64, points) * 5 // 4 + 5
    assert all(math.isfinite(value) or series.not_finite for value in kept.values)
    if finite:
        known = [value for value in kept.values if math.isfinite(value)]
        assert (min(known), max(known)) == (min(finite), max(finite))


def test_attempts_and_restarts_are_segments(tmp_path: Path) -> None:
    again: list[dict[str, object]] = [{**line, "attempt": "0.1"} for line in losses(5, 6, 7, begin=2)]
    later: list[dict[str, object]] = [{**line, "attempt": "1.1"} for line in losses(8, 9)]
    found = read_series(write(tmp_path, *losses(1, 2, 3), *losses(4, 5), *again, *later), 0, 100)
    assert segments(found) == [(1, [0, 1, 2]), (1, [0, 1]), (2, [2, 3, 4]), (3, [0, 1])]


def test_a_part_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    folder = write(tmp_path, *losses(1, 2))
    first = read_series(folder, 0, 100)
    write(tmp_path, *losses(3, begin=2), '{"step": 3, "val')
    second = read_series(folder, first.end, 100)
    assert segments(second) == [(1, [2])]
    assert not read_series(folder, second.end, 100).series


def test_a_part_ends_after_a_time_and_a_size(tmp_path: Path) -> None:
    folder = write(tmp_path, *losses(*range(2000)))
    ticks = itertools.count()
    late = read_series(folder, 0, 100, clock=lambda: next(ticks) * 0.4, block_bytes=10_000)
    assert late.has_more and 20_000 < late.end < 40_000
    large = read_series(folder, 0, 100, max_bytes=15_000, block_bytes=10_000)
    assert large.has_more and 15_000 <= large.end <= 20_000
    assert segments(read_series(folder, large.end, 100))[0][1][0] == segments(large)[0][1][-1] + 1


def test_only_the_wanted_metrics_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"step": 1, "values": {"loss": 1, "val/loss": "NaN", "text": "low", "none": None}})
    assert list(read_series(tmp_path, 0, 100, ["val/loss"]).series) == ["val/loss"]
    write(tmp_path, {"step": 2, "values": {"loss": 1, "text": "low"}})
    assert "text" not in read_series(tmp_path, 0, 100).series


@pytest.mark.slow
def test_hostile_files_take_little_memory_and_time(tmp_path: Path) -> None:
    many = {f"name-{at}": at for at in range(3000)}
    write(tmp_path, *({"step": at, "values": many} for at in range(40)))
    descending = ({"step": -at, "values": {"loss": at}, "attempt": f"{at}.{at}"} for at in range(100_000))
    write(tmp_path, *descending, {"step": 1, "values": {"x" * 300: 1}}, "{", "[]", "x" * 2_000_000)
    began_s = time.process_time()
    tracemalloc.start()
    found = read_series(tmp_path, 0, 16_384, clock=lambda: 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20
    assert time.process_time() - began_s < 20
    assert len(found.series) == MAX_NAMES
    assert all(len(series.segments) <= MAX_SEGMENTS for series in found.series.values())
    kept = [points for series in found.series.values() for _, points in series.thinned(found.most)]
    assert sum(len(points.steps) for points in kept) <= MAX_ALL_POINTS
