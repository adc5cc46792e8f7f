"""Metrics of event files of running tasks, without a server: when they are read, and what they replace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.services.event_metric_collector import EventMetricCollector
from paicluster.store import metric_rows
from support.metric_tasks import Tasks, until
from support.server_fixture import DEADLINE_S

LOSS = "tensorboard/loss"


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    made = Tasks(tmp_path)
    yield made
    # The collectors ended with the loop of the test.
    made.store.close()


def started(tasks: Tasks, **limits: float) -> EventMetricCollector:
    collector = tasks.new_event_collector(**limits)
    collector.start()
    return collector


def count(tasks: Tasks) -> int:
    found = tasks.stored().get(LOSS)
    return 0 if found is None else found.times


async def test_a_request_has_what_a_running_task_has_written(tasks: Tasks) -> None:
    tasks.add("a")
    collector = started(tasks)
    await collector.catch_up([tasks.job_id])
    assert tasks.stored() == {}
    tasks.write_events("a", 0.5, 0.25)
    await collector.catch_up([tasks.job_id])
    tasks.write_events("a", 2.0, start=2)
    await collector.catch_up([tasks.job_id])
    found = tasks.stored()[LOSS]
    assert (found.times, found.last, found.last_step, found.min, found.max) == (3, 2.0, 2, 0.25, 2.0)


async def test_nothing_is_read_that_no_client_looks_at(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", 1.0)
    collector = started(tasks)
    await collector.catch_up([])
    await collector.catch_up([tasks.job_id + 1])
    assert count(tasks) == 0


async def test_files_that_did_not_grow_are_not_read_again(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", 1.0)
    collector = started(tasks)
    await collector.catch_up([tasks.job_id])
    commits = tasks.store.commits
    for _ in range(3):
        await collector.catch_up([tasks.job_id])
    assert (count(tasks), tasks.store.commits) == (1, commits)


async def test_files_are_read_again_after_a_pause(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", 1.0)
    collector = started(tasks, interval_s=1.0)
    await collector.catch_up([tasks.job_id])
    read_s = time.monotonic()
    tasks.write_events("a", 2.0, start=1)
    async with asyncio.timeout(DEADLINE_S):
        while count(tasks) == 1:
            await collector.catch_up([tasks.job_id])
            await asyncio.sleep(0.01)
    assert time.monotonic() - read_s > 1.0


async def test_the_pause_is_longer_after_a_long_read(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", 1.0)
    collector = started(tasks, cost_factor=10_000.0)
    await collector.catch_up([tasks.job_id])
    tasks.write_events("a", 2.0, start=1)
    for _ in range(3):
        await collector.catch_up([tasks.job_id])
    assert count(tasks) == 1


async def test_a_request_waits_for_a_moment_only(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", *range(5000))
    collector = started(tasks, wait_s=0.0)
    await collector.catch_up([tasks.job_id])
    assert count(tasks) == 0
    await until(lambda: count(tasks) == 5000)


async def test_each_job_has_its_turn(tasks: Tasks, tmp_path: Path) -> None:
    """A job of one task does not wait for all tasks of another one."""
    for number in range(4):
        tasks.add(f"a{number}")
        tasks.write_events(f"a{number}", 1.0)
    other = Tasks(tmp_path, tasks.store, "other")
    other.add("b")
    other.write_events("b", 1.0)
    collector = started(tasks)
    collector.request([tasks.job_id])
    await until(lambda: count(tasks) == 1)
    await collector.catch_up([other.job_id])
    assert count(other) == 1
    assert len(tasks.counts()) < 4


async def test_a_new_collector_counts_nothing_twice(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.write_events("a", 1.0, 2.0)
    await started(tasks).catch_up([tasks.job_id])
    tasks.write_events("a", 3.0, start=2)
    await asyncio.gather(*(started(tasks).catch_up([tasks.job_id]) for _ in range(3)))
    assert count(tasks) == 3
    # What the task has at its end replaces it, too.
    tasks.write_events("a", 4.0, start=3)
    tasks.end("a")
    await tasks.collector.catch_up([tasks.job_id])
    assert (count(tasks), tasks.unread()) == (4, [])


async def test_the_end_of_a_task_is_what_its_files_have_then(tasks: Tasks) -> None:
    tasks.add("a")
    path = tasks.write_events("a", 1.0, 2.0, tag="old")
    await started(tasks).catch_up([tasks.job_id])
    path.unlink()
    tasks.write_events("a", 3.0)
    tasks.end("a")
    await tasks.collector.catch_up([tasks.job_id])
    assert {name: values.times for name, values in tasks.stored().items()} == {LOSS: 1}


async def test_a_collector_forgets_the_oldest_of_many_tasks(tasks: Tasks) -> None:
    for uid in ("a", "b"):
        tasks.add(uid)
        tasks.write_events(uid, 1.0)
    collector = started(tasks, max_known=1)
    for _ in range(2):
        await collector.catch_up([tasks.job_id])
    assert tasks.counts() == [1, 1]


async def test_a_closed_collector_does_not_wait_for_the_files(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    tasks.add("a")
    path = tasks.write_events("a", *range(5000))
    with path.open("ab") as file:
        part = path.read_bytes()
        for _ in range(100):
            file.write(part)
    collector = started(tasks)
    collector.request([tasks.job_id])
    await until(lambda: workers_of(tasks.folder / "a"))
    await collector.close()
    await until(lambda: not workers_of(tasks.folder / "a"))
    # By the collector, not because it had read all of them.
    await until(lambda: "ended with -9" in caplog.text)
    assert count(tasks) == 0


def workers_of(folder: Path) -> list[Path]:
    """Processes that read the event files of a task."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in command_of(path)]


def command_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it ended
        return ""


async def test_a_write_that_fails_is_repeated(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_group, failures = metric_rows.replace_group, [OSError("no space")]

    def failing(*arguments: object) -> None:
        if failures:
            raise failures.pop()
        replace_group(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(metric_rows, "replace_group", failing)
    tasks.add("a")
    tasks.write_events("a", 1.0)
    collector = started(tasks)
    await collector.catch_up([tasks.job_id])
    assert count(tasks) == 0
    await collector.catch_up([tasks.job_id])
    assert (count(tasks), failures) == (1, [])
