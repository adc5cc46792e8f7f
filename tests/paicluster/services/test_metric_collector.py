"""Collection of metrics from the files of tasks, without a server: what is read, and that it counts once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from paicluster.store import metric_rows
from paicluster.store.metric_rows import MetricValues
from support.metric_tasks import Tasks, until


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    made = Tasks(tmp_path)
    yield made
    # The collector ended with the loop of the test.
    made.store.close()


def of(*losses: float) -> dict[str, MetricValues]:
    low, high = min(losses), max(losses)
    return {
        "loss": MetricValues(
            len(losses), losses[-1], len(losses) - 1, low, losses.index(low), high, losses.index(high)
        )
    }


async def test_what_tasks_append_arrives_while_they_run(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.collector.start()
    tasks.log("a", 0.5, 0.25)
    await until(lambda: tasks.stored() == of(0.5, 0.25))
    with tasks.file("a").open("a") as file:
        file.write('{"step": 2, "values": ')  # as much as the disk had room for
    tasks.log("a", 0.1, start=3)
    tasks.log("a", 0.75, start=2)
    await until(lambda: tasks.stored() == of(0.5, 0.25, 0.75))
    tasks.end("a")
    tasks.collector.finish([(tasks.job_id, "a")])
    await until(lambda: not tasks.unread())
    assert tasks.stored() == of(0.5, 0.25, 0.75)


async def test_the_end_of_a_task_that_was_never_seen_running_is_read(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.log("a", 3.0, 1.0)
    tasks.end("a")
    tasks.collector.start()
    tasks.collector.finish([(tasks.job_id, "a")])
    await until(lambda: not tasks.unread())
    assert tasks.stored() == of(3.0, 1.0)


async def test_nothing_is_written_for_a_task_that_logs_nothing(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.add("b")
    tasks.log("b", 1.0)
    commits = tasks.store.commits
    tasks.collector.start()
    tasks.end("a")
    tasks.collector.finish([(tasks.job_id, "a")])
    await until(lambda: tasks.stored() == of(1.0))
    assert tasks.unread() == ["a", "b"]
    assert tasks.store.commits == commits + 2  # the end of the task, and the metrics of the other one
    # The first request marks it.
    assert await tasks.collector.catch_up([tasks.job_id]) == frozenset()
    assert tasks.unread() == ["b"]


async def test_a_request_reads_what_is_there_now(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.log("a", 1.0)
    assert await tasks.collector.catch_up([tasks.job_id]) == frozenset()
    assert tasks.stored() == of(1.0)
    tasks.log("a", 2.0, start=1)
    await tasks.collector.catch_up([tasks.job_id])
    assert tasks.stored() == of(1.0, 2.0)
    tasks.end("a")
    await tasks.collector.catch_up([tasks.job_id])
    assert tasks.stored() == of(1.0, 2.0)
    assert tasks.unread() == []


async def test_requests_and_the_collector_count_each_line_once(tasks: Tasks) -> None:
    for uid in ("a", "b", "c"):
        tasks.add(uid)
    tasks.collector.start()
    for round_ in range(20):
        for uid in ("a", "b", "c"):
            tasks.log(uid, float(round_), start=round_)
        await asyncio.gather(*(tasks.collector.catch_up([tasks.job_id]) for _ in range(3)))
    found = tasks.store.read_sync(lambda conn: metric_rows.metrics_of(conn, tasks.job_id))
    assert [one.values.times for one in found] == [20, 20, 20]


async def test_a_new_collector_goes_on_where_the_last_one_stopped(tasks: Tasks) -> None:
    tasks.add("a")
    tasks.collector.start()
    tasks.log("a", 1.0, 2.0)
    await until(lambda: tasks.stored() == of(1.0, 2.0))
    await tasks.collector.close()
    tasks.log("a", 3.0, start=2)
    tasks.collector = tasks.new_collector()
    tasks.collector.start()
    await until(lambda: tasks.stored() == of(1.0, 2.0, 3.0))


async def test_a_long_file_is_read_in_parts(tasks: Tasks) -> None:
    tasks.collector = tasks.new_collector(read_bytes=500)
    tasks.add("a")
    losses = [float(n) for n in range(50)]
    tasks.log("a", *losses[:25])
    with tasks.file("a").open("a") as file:
        file.write("x" * 1000 + "\n")  # longer than what is read at once
    tasks.log("a", *losses[25:], start=25)
    tasks.end("a")
    assert await tasks.collector.catch_up([tasks.job_id]) == frozenset()
    assert tasks.stored() == of(*losses)


async def test_a_request_does_not_wait_for_all_of_many_files(tasks: Tasks) -> None:
    tasks.collector = tasks.new_collector(request_timeout_s=0.0)
    tasks.add("a")
    tasks.log("a", 1.0)
    tasks.end("a")
    assert await tasks.collector.catch_up([tasks.job_id]) == {tasks.job_id}
    assert tasks.stored() == {}
    tasks.collector.start()
    await until(lambda: tasks.stored() == of(1.0))
    assert await tasks.collector.catch_up([tasks.job_id]) == frozenset()


def _link(tasks: Tasks, target: Path) -> None:
    tasks.file("a").symlink_to(target)


def _hard_link(tasks: Tasks, target: Path) -> None:
    os.link(target, tasks.file("a"))


def _folder_link(tasks: Tasks, target: Path) -> None:
    tasks.file("a").parent.rmdir()
    target.rename(target.with_name("metrics.jsonl"))
    tasks.file("a").parent.symlink_to(target.parent)


def _fifo(tasks: Tasks, target: Path) -> None:
    os.mkfifo(tasks.file("a"))


@pytest.mark.parametrize("make", [_link, _hard_link, _folder_link, _fifo])
async def test_only_the_tasks_own_file_is_read(
    tasks: Tasks, tmp_path: Path, make: Callable[[Tasks, Path], None]
) -> None:
    secret = tmp_path / "other" / "secret"
    secret.parent.mkdir()
    secret.write_text('{"step": 1, "values": {"secret": 1}}\n')
    tasks.add("a")
    make(tasks, secret)
    tasks.end("a")
    assert await tasks.collector.catch_up([tasks.job_id]) == frozenset()
    assert tasks.stored() == {}


async def test_a_write_that_fails_is_repeated(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    add_parts, failures = metric_rows.add_parts, [OSError("no space"), OSError("no space")]

    def failing(conn: object, parts: Sequence[object], now_ms: int) -> dict[str, int]:
        if failures:
            raise failures.pop()
        return add_parts(conn, parts, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(metric_rows, "add_parts", failing)
    tasks.add("a")
    tasks.add("b")
    tasks.log("a", 1.0)
    tasks.end("b")
    tasks.collector.finish([(tasks.job_id, "b")])
    tasks.collector.start()
    await until(lambda: tasks.stored() == of(1.0))
    assert not failures
