"""Rows of metrics: merged with what was stored before, once, within the bound, and removed with their job."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.store import Store, job_columns, jobs, metric_rows, removal
from paicluster.store.address import DatabaseAddress
from paicluster.store.job_columns import JobSize
from paicluster.store.jobs import NewJob
from paicluster.store.metric_rows import (
    MAX_GROUP_NAMES,
    MAX_NAMES,
    MetricGroup,
    MetricPart,
    MetricValues,
)
from paicluster.store.row_check import row_problems
from paicluster.store.rows import TaskRow


@pytest.fixture(name="job_id")
def job_with_tasks(store: Store, new_job: Callable[..., NewJob]) -> int:
    (made,) = store.write_sync(lambda conn: jobs.insert_jobs(conn, [new_job()]))
    job_id = made.id

    def task(uid: str, index: int, attempt: int) -> TaskRow:
        return TaskRow(uid, job_id, 0, "main", 0, index, attempt, f"task-{index}", "Running", launched_ms=1)

    rows = [task("a0", 0, 0), task("a1", 0, 1), task("b0", 1, 0)]
    store.write_sync(lambda conn: jobs.insert_tasks(conn, rows))
    return int(job_id)


def add(store: Store, *parts: MetricPart) -> dict[str, int]:
    return store.write_sync(lambda conn: metric_rows.add_parts(conn, parts, 1))


def of_job(store: Store, job_id: int) -> list[tuple[int, str, MetricValues]]:
    found = store.read_sync(lambda conn: metric_rows.metrics_of(conn, job_id))
    return [(one.task_index, one.name, one.values) for one in found]


def test_parts_are_merged(store: Store, job_id: int) -> None:
    first = {
        "loss": MetricValues(2, 0.5, 2, 0.5, 2, 0.9, 1),
        "nan": MetricValues(1, None, 1, None, None, None, None),
    }
    add(store, MetricPart(job_id, "a0", 0, 10, first))
    later = {
        "loss": MetricValues(3, None, 5, 0.4, 4, 0.8, 3),
        "nan": MetricValues(1, 2.0, 6, 2.0, 6, 2.0, 6),
        "high": MetricValues(1, math.inf, 1, math.inf, 1, math.inf, 1),
    }
    assert add(store, MetricPart(job_id, "a0", 10, 30, later)) == {"a0": 30}
    assert of_job(store, job_id) == [
        (0, "high", MetricValues(1, math.inf, 1, math.inf, 1, math.inf, 1)),
        (0, "loss", MetricValues(5, None, 5, 0.4, 4, 0.9, 1)),
        (0, "nan", MetricValues(2, 2.0, 6, 2.0, 6, 2.0, 6)),
    ]


def test_a_list_has_the_first_task_that_logged_a_metric(store: Store, job_id: int) -> None:
    def values(last: float | None, low: float | None, high: float | None) -> MetricValues:
        return MetricValues(1, last, 1, low, 1, high, 1)

    add(
        store,
        MetricPart(job_id, "b0", 0, 10, {"loss": values(7, 1, 99), "late": values(5, 5, 5)}, is_last=True),
        MetricPart(job_id, "a1", 0, 10, {"loss": values(0.5, None, None)}, is_last=True),
        MetricPart(job_id, "a0", 0, 10, {"loss": values(0.9, 0.9, 3)}),
    )

    def listed(names: list[str], arrays: set[int]) -> dict[str, tuple[float | None, ...]]:
        sizes = [JobSize(job_id, 2, 1)]
        found = store.read_sync(lambda conn: job_columns.metrics_of(conn, sizes, arrays, names))
        assert (found.unread, found.missed) == ({job_id}, set())
        return {name: tuple(fields[:3]) for name, fields in found.by_job[job_id].items()}

    # The last value is that of the last attempt.
    assert listed(["loss"], set()) == {"loss": (0.5, 0.9, 3)}
    assert listed(["loss", "late", "none"], set()) == {"loss": (0.5, 0.9, 3), "late": (5, 5, 5)}
    assert listed(["loss"], {job_id})["loss"][1:] == (0.9, 99)


def test_a_part_counts_once(store: Store, job_id: int) -> None:
    part = MetricPart(job_id, "a0", 0, 10, {"loss": MetricValues(1, 1.0, 1, 1.0, 1, 1.0, 1)})
    assert add(store, part) == {"a0": 10}
    assert add(store, part) == {"a0": 10}
    # Neither does one count whose beginning is missing.
    assert add(store, MetricPart(job_id, "a0", 20, 30, part.metrics)) == {"a0": 10}
    assert of_job(store, job_id) == [(0, "loss", MetricValues(1, 1.0, 1, 1.0, 1, 1.0, 1))]


def test_attempts_are_in_their_order(store: Store, job_id: int) -> None:
    for uid, value in (("b0", 3.0), ("a1", 2.0), ("a0", 1.0)):
        values = MetricValues(1, value, 1, value, 1, value, 1)
        add(store, MetricPart(job_id, uid, 0, 10, {"loss": values}))
    assert [(index, values.last) for index, _, values in of_job(store, job_id)] == [
        (0, 1.0),
        (0, 2.0),
        (1, 3.0),
    ]


def test_attempts_of_a_task_are_merged() -> None:
    first = MetricValues(3, 0.5, 3, 0.5, 3, 0.9, 1)
    later = MetricValues(2, None, 9, 0.6, 8, 0.9, 9)
    assert metric_rows.merged(first, later) == MetricValues(5, None, 9, 0.5, 3, 0.9, 1)
    nothing = MetricValues(1, None, 1, None, None, None, None)
    assert metric_rows.merged(nothing, first)[3:] == first[3:]
    assert metric_rows.merged(first, nothing)[3:] == first[3:]


def test_names_beyond_the_bound_are_left_out_with_one_event(store: Store, job_id: int) -> None:
    value = MetricValues(1, 1.0, 1, 1.0, 1, 1.0, 1)
    many = {f"m{n}": value for n in range(MAX_NAMES - 1)}
    add(store, MetricPart(job_id, "a0", 0, 10, many))
    assert not store.read_sync(lambda conn: metric_rows.has_omitted_names(conn, job_id))
    add(store, MetricPart(job_id, "a0", 10, 20, {"m0": value, "new": value, "beyond": value}))
    add(store, MetricPart(job_id, "a0", 20, 30, {"m1": value, "more": value}))
    names = store.read_sync(lambda conn: metric_rows.names_of(conn, job_id))
    assert len(names) == MAX_NAMES and "new" in names and "beyond" not in names
    assert {name: values.times for _, name, values in of_job(store, job_id) if values.times > 1} == {
        "m0": 2,
        "m1": 2,
    }
    assert store.read_sync(lambda conn: metric_rows.has_omitted_names(conn, job_id))
    events = store.read_sync(lambda conn: jobs.events_of(conn, job_id))
    assert [(event.reason, event.count) for event in events] == [("TooManyMetrics", 1)]


def test_files_are_unread_until_they_are_complete(store: Store, job_id: int) -> None:
    def unread() -> dict[str, tuple[int, bool]]:
        files = store.read_sync(lambda conn: metric_rows.unread_files(conn, [job_id]))
        return {file.uid: (file.read_bytes, file.has_ended) for file in files}

    add(store, MetricPart(job_id, "a1", 0, 10, {}))
    ended = [{"uid": "a0", "job_id": job_id, "sub_state": "Completed", "completed_ms": 2}]
    store.write_sync(lambda conn: jobs.update_tasks(conn, ended))
    assert unread() == {"a0": (0, True), "a1": (10, False), "b0": (0, False)}
    add(store, MetricPart(job_id, "a0", 0, 7, {}, is_last=True))
    assert unread() == {"a1": (10, False), "b0": (0, False)}
    assert store.read_sync(lambda conn: metric_rows.read_offsets(conn, ["a0", "a1", "b0"])) == {
        "a0": 7,
        "a1": 10,
    }


def test_rows_go_with_their_job(store: Store, job_id: int, database: Path | DatabaseAddress) -> None:
    part = MetricPart(
        job_id, "a0", 0, 10, {"loss": MetricValues(1, -math.inf, 1, -math.inf, 1, -math.inf, 1)}
    )
    add(store, part)
    if isinstance(database, Path):
        # Infinity is no damage.
        assert [str(problem) for problem in row_problems(database) if "metric" in problem.table] == []
    done = {"sub_state": "Completed", "completed_ms": 1}
    store.write_sync(lambda conn: jobs.update_job(conn, job_id, **done))
    assert store.write_sync(lambda conn: removal.delete_jobs(conn, [job_id])) == 1
    # The collector may come late.
    assert add(store, part) == {}
    for name in ("task_metrics", "metric_files"):
        count = f"SELECT count(*) FROM {name}"
        assert store.read_sync(lambda conn, text=count: conn.exec_driver_sql(text).scalar()) == 0


VALUE = MetricValues(1, 1.0, 1, 1.0, 1, 1.0, 1)


def group(**counts: int) -> MetricGroup:
    return MetricGroup("tb/", {f"tb/{name}": VALUE._replace(times=times) for name, times in counts.items()})


def replace_group(store: Store, job_id: int, uid: str, new: MetricGroup) -> dict[str, int]:
    store.write_sync(lambda conn: metric_rows.replace_group(conn, job_id, uid, new))
    return times(store, job_id)


def times(store: Store, job_id: int) -> dict[str, int]:
    return {name: values.times for _, name, values in of_job(store, job_id)}


def test_a_group_replaces_what_was_stored_of_it(store: Store, job_id: int) -> None:
    logged = {"loss": VALUE, "TB/loss": VALUE}
    add(store, MetricPart(job_id, "a0", 0, 10, logged))
    for _ in range(2):
        assert replace_group(store, job_id, "a0", group(old=1, loss=5)) == {
            "loss": 1,
            "TB/loss": 1,
            "tb/old": 1,
            "tb/loss": 5,
        }
    new = {"loss": 1, "TB/loss": 1, "tb/loss": 7}
    assert replace_group(store, job_id, "a0", group(loss=7)) == new
    # That of the end, too, and no other comes after it.
    add(store, MetricPart(job_id, "a0", 10, 20, {"loss": VALUE}, is_last=True, group=group(loss=9)))
    assert replace_group(store, job_id, "a0", group(loss=7)) == {"loss": 2, "TB/loss": 1, "tb/loss": 9}
    assert replace_group(store, job_id, "removed", group(loss=7)) == times(store, job_id)


def test_a_group_of_a_running_task_leaves_room_for_what_it_logs(store: Store, job_id: int) -> None:
    whole = group(**{f"e{n}": 1 for n in range(MAX_NAMES)})
    assert len(replace_group(store, job_id, "a0", whole)) == MAX_GROUP_NAMES
    logged = {f"m{n}": VALUE for n in range(MAX_NAMES - 10)}
    few = dict(list(logged.items())[: MAX_NAMES - MAX_GROUP_NAMES])
    add(store, MetricPart(job_id, "a0", 0, 10, few))
    assert len(replace_group(store, job_id, "a0", whole)) == MAX_NAMES
    assert not store.read_sync(lambda conn: metric_rows.has_omitted_names(conn, job_id))
    rest = {name: value for name, value in logged.items() if name not in few}
    add(store, MetricPart(job_id, "a0", 10, 20, rest, is_last=True, group=whole))
    found = times(store, job_id)
    assert (len(found), sum(name in logged for name in found)) == (MAX_NAMES, len(logged))
    assert store.read_sync(lambda conn: metric_rows.has_omitted_names(conn, job_id))
