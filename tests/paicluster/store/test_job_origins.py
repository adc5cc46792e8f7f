"""Limits of what jobs submit, as the database keeps them."""

from __future__ import annotations

from paicluster.store import Store
from paicluster.store.compiled_statements import execute
from paicluster.store.job_inserts import INSERT_JOB, Inserted, NewJob, insert_jobs
from paicluster.store.job_origins import ParentJob, SubmissionLimits
from paicluster.store.removal import delete_jobs

NOT_LIMITED = SubmissionLimits(None, None)


def insert(store: Store, name: str, parent_id: int | None, limits: SubmissionLimits) -> Inserted | Exception:
    parent = None if parent_id is None else ParentJob(parent_id, limits)
    new = NewJob("alice", name, "default", "{}", "{}", 0, parent=parent)
    [result] = store.write_sync(lambda conn: insert_jobs(conn, [new]))
    return result


def chain(store: Store, length: int) -> int:
    """A chain of jobs, each submitted by the one before; returns the id of the last one."""
    last: int | None = None
    for number in range(length):
        inserted = insert(store, f"j{number}", last, NOT_LIMITED)
        assert isinstance(inserted, Inserted)
        last = inserted.id
    assert last is not None
    return last


def test_depth_of_zero_lets_no_job_submit(store: Store) -> None:
    refused = insert(store, "child", chain(store, 1), SubmissionLimits(0, None))
    assert "Job j0 cannot submit a job: on this cluster jobs submit none." in str(refused)


def test_long_chain_is_shown_with_its_last_jobs(store: Store) -> None:
    last = chain(store, 30)
    refused = str(insert(store, "child", last, SubmissionLimits(3, None)))
    assert "(... -> j9 -> j10 -> " in refused and refused.count("->") == 21 and "-> j29)" in refused


def test_chain_stays_when_its_first_jobs_are_deleted(store: Store) -> None:
    last = chain(store, 3)

    def finish_and_delete(conn) -> int:  # type: ignore[no-untyped-def]
        execute(conn, "UPDATE jobs SET sub_state = 'Completed' WHERE id < ?", (last,)).close()
        return delete_jobs(conn, list(range(last)))

    assert store.write_sync(finish_and_delete) == 2
    assert "(j0 -> j1 -> j2)" in str(insert(store, "child", last, SubmissionLimits(2, None)))


def test_jobs_of_one_batch_count_together(store: Store) -> None:
    parent = ParentJob(chain(store, 1), SubmissionLimits(None, 2))
    batch = [NewJob("alice", f"b{i}", "default", "{}", "{}", 0, parent=parent) for i in range(3)]
    results = store.write_sync(lambda conn: INSERT_JOB.fn(conn, batch))
    assert [isinstance(result, Inserted) for result in results] == [True, True, False]


def test_deleted_job_submits_none_and_the_rest_of_the_batch_is_stored(store: Store) -> None:
    gone = ParentJob(chain(store, 1) + 100, NOT_LIMITED)
    batch = [
        NewJob("alice", "of-none", "default", "{}", "{}", 0, parent=gone),
        NewJob("bob", "other", "default", "{}", "{}", 0),
    ]
    refused, stored = store.write_sync(lambda conn: INSERT_JOB.fn(conn, batch))
    assert "was deleted" in str(refused) and isinstance(stored, Inserted)
