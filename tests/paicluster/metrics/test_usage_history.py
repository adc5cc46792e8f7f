"""History of usage: thinned with age, bounded, kept over restarts, deleted with its job."""

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from paicluster.metrics import usage_history
from paicluster.metrics.usage import Usage
from paicluster.metrics.usage_history import (
    MAX_SERIES_BYTES,
    RING_POINTS,
    UsageHistory,
    UsageRings,
    job_key,
    node_key,
    task_key,
)

START_MS = 1_800_000_000_000
FIVE_S = 5000


def usage(cpu: float, memory: float = 0.0) -> Usage:
    return Usage(cpu, memory, 0.0, 0.0)


def fill(history: UsageHistory, key: usage_history.SeriesKey, count: int, start_ms: int = START_MS) -> None:
    for number in range(count):
        history.append(start_ms + number * FIVE_S, {key: usage(number % 2, float(number))})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


def opened(file: Path, **options: int) -> UsageHistory:
    history = UsageHistory(file, **options)
    history.open()
    return history


def test_points_come_back_as_they_were_recorded():
    history = UsageHistory()
    history.append(START_MS, {node_key("a"): usage(0.5, 100.0), node_key("b"): usage(2.0)})

    points = history.points(node_key("a"))

    assert [(point.time_ms, point.usage.cpu, point.usage.memory) for point in points] == [
        (START_MS, 0.5, 100.0)
    ]
    assert history.points(node_key("unknown")) == []


def test_old_points_are_thinned_and_the_newest_stay_fine():
    history = UsageHistory()
    day = 24 * 3600 // 5
    fill(history, node_key("a"), day)

    times = [point.time_ms for point in history.points(node_key("a"))]

    assert times == sorted(times)
    assert times[0] - START_MS <= 3600_000, "the first hour is still known"
    assert len(times) < 3 * RING_POINTS
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps[-1] == FIVE_S
    assert steps[0] == 600_000


def test_thinning_keeps_the_mean_of_cpu_and_the_peak_of_memory():
    history = UsageHistory()
    fill(history, node_key("a"), 2 * RING_POINTS)

    oldest = history.points(node_key("a"))[0]

    assert oldest.usage.cpu == pytest.approx(0.5)
    # Twelve samples a minute; the largest of the first minute is the last one.
    assert oldest.usage.memory == 11.0


def test_a_series_is_bounded():
    series = UsageRings()
    for number in range(5000):
        series.append(usage_history.Point(START_MS + number * 60_000, usage(1.0)))

    assert sum(map(len, series.rings)) <= MAX_SERIES_BYTES


def test_a_clock_that_is_set_back_does_not_stop_the_series():
    history = UsageHistory()
    fill(history, node_key("a"), 5)
    history.append(START_MS + 7000, {node_key("a"): usage(9.0)})

    points = history.points(node_key("a"))

    assert [point.time_ms - START_MS for point in points] == [0, 5000, 7000]
    assert points[-1].usage.cpu == 9.0


def test_history_survives_a_restart_and_continues(file: Path):
    first = opened(file)
    fill(first, job_key(7), 3)
    first.close()

    second = opened(file)
    fill(second, job_key(7), 1, START_MS + 60_000)

    assert [p.time_ms - START_MS for p in second.points(job_key(7))] == [0, 5000, 10_000, 60_000]
    second.close()


def test_series_of_ended_tasks_leave_the_memory_and_stay_readable(file: Path):
    history = opened(file)
    fill(history, task_key(7, "main", 0), 3)
    history.flush(START_MS + 3600_000)

    assert not history._open
    assert len(history.points(task_key(7, "main", 0))) == 3
    history.close()


def test_removing_a_job_removes_its_series_and_no_others(file: Path):
    history = opened(file)
    for key in (job_key(7), task_key(7, "main", 0), job_key(8)):
        fill(history, key, 2)
    history.flush()
    history.remove_jobs([7])

    assert history.points(job_key(7)) == history.points(task_key(7, "main", 0)) == []
    assert len(history.points(job_key(8))) == 2
    history.close()


def test_a_full_file_loses_the_finest_points_of_the_oldest_jobs_first(file: Path):
    history = opened(file, max_bytes=1 << 19)
    for job_id in range(1, 101):
        fill(history, job_key(job_id), 300, START_MS + job_id * 3600_000)
        history.flush(START_MS + (job_id + 2) * 3600_000)

    oldest, newest = history.points(job_key(1)), history.points(job_key(100))

    # Five minutes, then twenty of twelve samples each.
    assert len(newest) == 5 + RING_POINTS
    assert 0 < len(oldest) < RING_POINTS / 2
    history.close()
    assert file.stat().st_size < 1 << 20


def test_a_file_that_is_locked_is_kept(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    history = opened(file)
    fill(history, job_key(7), 2)
    history.close()
    before = file.read_bytes()

    def refuse(file: Path) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(usage_history, "_connect", refuse)
    opened(file).close()

    assert file.read_bytes() == before and "is not stored: database is locked" in caplog.text


def test_a_damaged_file_is_replaced(file: Path, caplog: pytest.LogCaptureFixture):
    file.write_bytes(b"this is no database" * 1000)

    history = opened(file)
    fill(history, job_key(7), 2)
    history.close()

    assert "is damaged and is replaced" in caplog.text
    again = opened(file)
    assert len(again.points(job_key(7))) == 2
    again.close()


def test_more_series_than_the_bound_are_ignored():
    history = UsageHistory(max_open_series=3)
    history.append(START_MS, {job_key(job_id): usage(1.0) for job_id in range(1, 6)})

    assert [bool(history.points(job_key(job_id))) for job_id in range(1, 6)] == [True] * 3 + [False] * 2
