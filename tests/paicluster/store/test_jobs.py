"""Jobs, their tasks, attempts, events and tags in the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from paicluster.store import Store, jobs, removal
from paicluster.store.job_list import reasons_of
from paicluster.store.jobs import AttemptRow, Inserted, InsertResult, JobQuery, JobRow, NewJob, TaskRow
from paiprotocol.errors import Conflict, NotFound, PaiError

MakeJob = Callable[..., NewJob]


def insert(store: Store, *new: NewJob) -> list[InsertResult]:
    return store.write_sync(lambda conn: jobs.insert_jobs(conn, new))


def ids(results: list[InsertResult]) -> list[int]:
    assert all(isinstance(result, Inserted) for result in results)
    return [result.id for result in results if isinstance(result, Inserted)]


def error_of(result: InsertResult) -> PaiError:
    assert isinstance(result, Conflict)
    return result


def summary(store: Store, **query: Any) -> dict[str, Any]:
    page = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery(**query)))
    (entry,) = json.loads(b"[%b]" % page.summaries)
    assert isinstance(entry, dict)
    return entry


def task(uid: str, job_id: int, **fields: Any) -> TaskRow:
    values = {
        "attempt": 0,
        "role": "worker",
        "role_order": 0,
        "task_index": 0,
        "task_attempt": 0,
        "task_uid": "task",
        "sub_state": "AttemptCreationRequested",
        **fields,
    }
    return TaskRow(uid, job_id, **values)


# -- submissions ----------------------------------------------------------------------------------


def test_new_job_is_pending_and_can_be_read(store: Store, new_job: MakeJob) -> None:
    new = new_job(
        "train", vc="vision", total_gpus=8, total_tasks=4, total_roles=2, priority="prod", sealed=b"\x00s"
    )
    (job_id,) = ids(insert(store, new))
    job = store.read_sync(lambda conn: jobs.get_job(conn, "alice~train"))
    assert job is not None
    assert job == store.read_sync(lambda conn: jobs.get_job_by_id(conn, job_id))
    assert (job.state, job.sub_state, job.execution_type) == ("WAITING", "AttemptCreationPending", "START")
    assert (job.total_gpus, job.total_tasks, job.total_roles, job.priority) == (8, 4, 2, "prod")
    assert (job.submission_ms, job.created_ms) == (1_700_000_000_000, 1_700_000_000_123)
    assert job.attempt == job.retries == 0
    spec = store.read_sync(lambda conn: jobs.job_spec(conn, job_id))
    assert spec is not None
    assert (spec.config, spec.job, spec.sealed) == (new.config, new.job, b"\x00s")


def test_unknown_job_is_none(store: Store) -> None:
    assert store.read_sync(lambda conn: jobs.get_job(conn, "nobody~nothing")) is None
    assert store.read_sync(lambda conn: jobs.get_job_by_id(conn, 1)) is None
    assert store.read_sync(lambda conn: jobs.job_spec(conn, 1)) is None


def test_duplicate_name_is_a_conflict_within_a_batch_too(store: Store, new_job: MakeJob) -> None:
    first, again, other_user = insert(store, new_job("a"), new_job("a"), new_job("a", "bob"))
    assert isinstance(first, Inserted)
    assert isinstance(other_user, Inserted)
    for error in (error_of(again), error_of(insert(store, new_job("a"))[0])):
        assert (error.status, error.code) == (409, "ConflictJobError")
        assert str(error) == "Job alice~a already exists."


def test_repeated_request_gets_the_first_job(store: Store, new_job: MakeJob) -> None:
    keyed = new_job("a", idempotency_key="k1", body_sha256="11")
    first, at_once = insert(store, keyed, keyed)
    assert isinstance(first, Inserted)
    assert at_once == Inserted(first.id, repeated=True)
    assert insert(store, keyed) == [Inserted(first.id, repeated=True)]


def test_key_with_another_body_is_rejected(store: Store, new_job: MakeJob) -> None:
    insert(store, new_job("a", idempotency_key="k1", body_sha256="11"))
    other = new_job("b", idempotency_key="k1", body_sha256="22")
    error = error_of(insert(store, other)[0])
    assert error.status == 422
    assert "k1" in str(error)
    assert store.read_sync(lambda conn: jobs.get_job(conn, "alice~b")) is None


def test_idempotency_keys_are_per_user(store: Store, new_job: MakeJob) -> None:
    results = insert(
        store,
        new_job("a", "alice", idempotency_key="k", body_sha256="11"),
        new_job("a", "bob", idempotency_key="k", body_sha256="22"),
    )
    assert len(set(ids(results))) == 2


def test_rejected_job_does_not_use_up_its_key(store: Store, new_job: MakeJob) -> None:
    insert(store, new_job("a"))
    error_of(insert(store, new_job("a", idempotency_key="k", body_sha256="11"))[0])
    assert isinstance(insert(store, new_job("b", idempotency_key="k", body_sha256="22"))[0], Inserted)


def test_old_keys_are_deleted(store: Store, new_job: MakeJob) -> None:
    insert(store, new_job("a", idempotency_key="k", body_sha256="11", submission_ms=1000))
    assert store.write_sync(lambda conn: jobs.forget_keys(conn, 1000)) == 0
    assert store.write_sync(lambda conn: jobs.forget_keys(conn, 1001)) == 1
    assert isinstance(insert(store, new_job("b", idempotency_key="k", body_sha256="22"))[0], Inserted)


def test_ids_are_never_reused(store: Store, new_job: MakeJob) -> None:
    first, second = ids(insert(store, new_job("a"), new_job("b")))
    store.write_sync(lambda conn: conn.exec_driver_sql("DELETE FROM jobs"))
    assert ids(insert(store, new_job("c"))) == [second + 1]
    assert first == 1


def test_batches_of_any_size_are_inserted_completely(store: Store, new_job: MakeJob) -> None:
    expected = 0
    for size in (1, 2, 3, 63, 64, 65, 200, 513):
        names = [f"s{size}_{n}" for n in range(size)]
        tagged = [
            new_job(name, tags=("t", "t", "u"), idempotency_key=name, body_sha256="1") for name in names
        ]
        assert ids(insert(store, *tagged)) == list(range(expected + 1, expected + size + 1))
        expected += size
    page = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery(tags_contain=("u",), with_total=True)))
    assert page.total == expected
    assert {tuple(entry["tags"]) for entry in json.loads(b"[%b]" % page.summaries)} == {("t", "u")}


# -- changes --------------------------------------------------------------------------------------


def test_summary_is_that_of_openpai(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(
        insert(store, new_job("train", vc="vision", total_gpus=2, tags=("b", "a"), priority="test"))
    )
    assert summary(store) == {
        "debugId": "0dce39c2fe74b020a2c46ea431614455",
        "name": "train",
        "username": "alice",
        "state": "WAITING",
        "subState": "AttemptCreationPending",
        "executionType": "START",
        "tags": ["a", "b"],
        "retries": 0,
        "retryDetails": {"user": 0, "platform": 0, "resource": 0},
        "retryDelayTime": None,
        "submissionTime": 1_700_000_000_000,
        "createdTime": 1_700_000_000_123,
        "launchedTime": None,
        "completedTime": None,
        "appExitCode": None,
        "virtualCluster": "vision",
        "totalGpuNumber": 2,
        "totalTaskNumber": 1,
        "totalTaskRoleNumber": 1,
        "jobPriority": "test",
    }
    store.write_sync(
        lambda conn: jobs.update_job(
            conn,
            job_id,
            sub_state="Completed",
            exit_code=0,
            completed_ms=1_700_000_009_000,
            retries=3,
            retries_user=1,
            retries_platform=2,
        )
    )
    entry = summary(store)
    assert (entry["state"], entry["subState"], entry["appExitCode"]) == ("SUCCEEDED", "Completed", 0)
    assert entry["retryDetails"] == {"user": 1, "platform": 2, "resource": 0}
    # A job that never ran counts as launched when it ended.
    assert entry["launchedTime"] == entry["completedTime"] == 1_700_000_009_000


def test_state_follows_from_sub_state_and_exit_code(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    steps: list[tuple[dict[str, Any], str]] = [
        ({"sub_state": "AttemptRunning"}, "RUNNING"),
        ({"sub_state": "AttemptDeletionPending", "exit_code": -210}, "STOPPING"),
        ({"sub_state": "Completed"}, "STOPPED"),
    ]
    for columns, state in steps:
        after = store.write_sync(lambda conn, columns=columns: jobs.update_job(conn, job_id, **columns))
        assert isinstance(after, JobRow)
        assert after.state == state
        assert store.read_sync(lambda conn: jobs.get_job_by_id(conn, job_id)) == after
        assert summary(store, state=(state,))["state"] == state


def test_updating_an_unknown_job_is_an_error(store: Store) -> None:
    with pytest.raises(NotFound):
        store.write_sync(lambda conn: jobs.update_job(conn, 5, retries=1))


def test_tags_are_added_and_removed(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job(tags=("keep",))))
    store.write_sync(lambda conn: jobs.add_tag(conn, job_id, "added"))
    store.write_sync(lambda conn: jobs.add_tag(conn, job_id, "added"))
    assert store.read_sync(lambda conn: jobs.tags_of(conn, job_id)) == ["added", "keep"]
    assert summary(store, tags_contain=("added",))["tags"] == ["added", "keep"]
    assert store.write_sync(lambda conn: jobs.remove_tag(conn, job_id, "keep")) is True
    assert store.write_sync(lambda conn: jobs.remove_tag(conn, job_id, "keep")) is False
    assert summary(store, tags_not_contain=("keep",))["tags"] == ["added"]


def test_names_that_look_like_sql_or_json_are_stored_verbatim(store: Store, new_job: MakeJob) -> None:
    name = """it's "quoted"'; DROP TABLE jobs; -- \\ ü € %_*?["""
    insert(store, new_job(name, name, vc=name, tags=(name,)))
    for query in (
        {"username": (name,)},
        {"vc": (name,)},
        {"tags_contain": (name,)},
        {"keyword": name},
        {"keyword": '"quoted"'},
        {"keyword": "%_*?["},
        {"keyword": "ü €"},
    ):
        assert summary(store, **query)["name"] == name


# -- history --------------------------------------------------------------------------------------


def test_gang_is_inserted_at_once_and_read_in_order(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    gang = [
        task(
            f"uid{order}-{index}", job_id, role=role, role_order=order, task_index=index, ports='{"http":[1]}'
        )
        for order, role in enumerate(("worker", "chief"))
        for index in range(70)
    ]
    store.write_sync(lambda conn: jobs.insert_tasks(conn, gang[::-1]))
    assert store.read_sync(lambda conn: jobs.tasks_of(conn, job_id, 0)) == gang
    assert store.read_sync(lambda conn: jobs.tasks_of(conn, job_id, 1)) == []


def test_latest_attempt_of_each_task_is_listed(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    tries = [task(f"u{n}", job_id, task_attempt=n) for n in range(3)]
    other = task("v", job_id, task_index=1)
    store.write_sync(lambda conn: jobs.insert_tasks(conn, [*tries, other]))
    assert store.read_sync(lambda conn: jobs.tasks_of(conn, job_id, 0)) == [tries[-1], other]
    assert store.read_sync(lambda conn: jobs.all_tasks_of(conn, job_id, 0)) == [*tries, other]
    assert store.read_sync(lambda conn: jobs.task_attempts_of(conn, job_id, 0, "worker", 0)) == tries[::-1]
    assert store.read_sync(lambda conn: jobs.get_task(conn, "v")) == other
    assert store.read_sync(lambda conn: jobs.get_task(conn, "w")) is None


def test_tasks_are_updated_with_different_columns(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    seen: list[int] = []

    def write(conn: Connection) -> None:
        jobs.insert_tasks(conn, [task("u", job_id), task("v", job_id, task_index=1)])
        jobs.update_tasks(
            conn,
            [
                {"uid": "u", "job_id": job_id, "sub_state": "AttemptRunning", "launched_ms": 5},
                {"uid": "v", "job_id": job_id, "lost": True, "stop_requested": True, "exit_code": -1000},
            ],
        )

    store.changes.subscribe(seen.append)
    store.write_sync(write)
    first, second = store.read_sync(lambda conn: jobs.tasks_of(conn, job_id, 0))
    assert (first.sub_state, first.launched_ms, first.lost) == ("AttemptRunning", 5, False)
    assert (second.exit_code, second.lost, second.stop_requested) == (-1000, True, True)
    assert seen == [job_id]


def test_task_attempt_cannot_be_inserted_twice(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    store.write_sync(lambda conn: jobs.insert_tasks(conn, [task("u", job_id)]))
    for again in (task("u", job_id, task_index=1), task("v", job_id)):
        with pytest.raises(Exception, match=r"(?i)unique"):
            store.write_sync(lambda conn, again=again: jobs.insert_tasks(conn, [again]))


def test_active_jobs_have_the_tasks_of_their_current_attempt(store: Store, new_job: MakeJob) -> None:
    over, running, waiting = ids(insert(store, new_job("over"), new_job("running"), new_job("waiting")))

    def write(conn: Connection) -> None:
        jobs.update_job(conn, over, sub_state="Completed", exit_code=0)
        jobs.update_job(conn, running, sub_state="AttemptRunning", attempt=1)
        jobs.insert_tasks(
            conn,
            [
                task("a", over),
                task("b", running),
                task("c", running, attempt=1),
                task("d", running, attempt=1, task_index=1),
            ],
        )

    store.write_sync(write)
    active = store.read_sync(jobs.active_jobs)
    assert [(one.job.id, [row.uid for row in one.tasks]) for one in active] == [
        (running, ["c", "d"]),
        (waiting, []),
    ]


def test_task_usage_excludes_ended_tasks(store: Store, new_job: MakeJob) -> None:
    running, over = ids(insert(store, new_job("running"), new_job("over")))
    usage: dict[str, Any] = {"node": "n1", "cpu": 2, "memory_mb": 100, "gpus": "[0, 3]"}

    def write(conn: Connection) -> None:
        jobs.insert_tasks(
            conn,
            [
                task("a", running, **usage),
                task("b", running, task_index=1, **usage),
                task("c", running, task_index=2, completed_ms=9, **usage),
                task("d", running, task_index=3),
                task("e", over, **usage),
            ],
        )
        jobs.update_job(conn, over, sub_state="Completed", exit_code=0)

    store.write_sync(write)
    usage = store.read_sync(jobs.task_usage)
    assert {(place.vc, place.node) for place in usage} == {("default", "n1")}
    assert [(place.cpu, place.memory_mb, place.gpus) for place in usage] == [(2, 100, 2)] * 2


def test_attempt_is_replaced(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    first = AttemptRow(job_id, 0, "AttemptRunning", created_ms=1)
    ended = AttemptRow(
        job_id, 0, "AttemptCompleted", 1, 2, 3, 255, "Failed", "why", "worker", 1, "text", "{}"
    )
    second = AttemptRow(job_id, 1, "AttemptPreparing")
    for row in (second, first, ended):
        store.write_sync(lambda conn, row=row: jobs.upsert_attempt(conn, row))
    assert store.read_sync(lambda conn: jobs.attempts_of(conn, job_id)) == [ended, second]


def report(store: Store, job_id: int, kind: str, message: str, now_ms: int) -> None:
    store.write_sync(
        lambda conn: jobs.add_event(
            conn,
            job_id,
            type=kind,
            reason="FailedScheduling",
            message=message,
            now_ms=now_ms,
            source="scheduler",
            pending=True,
        )
    )


def test_repeated_event_is_counted(store: Store, new_job: MakeJob) -> None:
    (job_id,) = ids(insert(store, new_job()))
    report(store, job_id, "Warning", "no room", 10)
    report(store, job_id, "Normal", "placed", 20)
    report(store, job_id, "Warning", "no room", 30)
    waiting, placed = store.read_sync(lambda conn: jobs.events_of(conn, job_id))
    assert (waiting.message, waiting.count, waiting.first_ms, waiting.last_ms) == ("no room", 2, 10, 30)
    assert (placed.message, placed.count) == ("placed", 1)
    assert store.read_sync(lambda conn: jobs.events_of(conn, job_id, "Normal")) == [placed]
    assert waiting.uid != placed.uid


def test_latest_event_comes_first_after_a_clock_change(store: Store, new_job: MakeJob) -> None:
    job = new_job()
    (job_id,) = ids(insert(store, job))
    for now_ms, message in ((1000, "no room"), (2000, "no image"), (500, "no room"), (400, "placed")):
        report(store, job_id, "Warning", message, now_ms)
    events = store.read_sync(lambda conn: jobs.events_of(conn, job_id))
    assert [event.message for event in events] == ["placed", "no room", "no image"]
    assert [event.count for event in events] == [1, 2, 1]
    assert store.read_sync(lambda conn: jobs.page_of_events(conn, job_id, None, 0, 2)) == (3, events[:2])
    assert store.read_sync(lambda conn: reasons_of(conn, [job.framework])) == {job.framework: "placed"}


def test_number_of_dependencies_is_not_limited(store: Store, new_job: MakeJob) -> None:
    existing = [new_job(name=f"job-{number}") for number in range(3)]
    job_ids = ids(insert(store, *existing))
    for job_id in job_ids:
        store.write_sync(
            lambda conn, job_id=job_id: jobs.update_job(  # type: ignore[misc]
                conn, job_id, sub_state="Completed", exit_code=0, completed_ms=job_id
            )
        )
    dependencies = [
        *(f"other~job-{number}" for number in range(5000)),
        existing[0].framework,
        existing[2].framework,
    ]

    def query(conn: Connection) -> tuple[dict[str, str], list[int]]:
        if conn.dialect.name == "sqlite":
            # The limit of its default build.
            conn.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)  # type: ignore[union-attr]
        return jobs.states_of(conn, dependencies), removal.oldest_finished(conn, 2, excluding=dependencies)

    states, removable = store.read_sync(query)
    assert states == {existing[0].framework: "SUCCEEDED", existing[2].framework: "SUCCEEDED"}
    assert removable == [job_ids[1]]


def test_task_without_a_job_is_rejected(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        store.write_sync(lambda conn: jobs.insert_tasks(conn, [task("u", 42)]))
