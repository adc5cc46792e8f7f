"""Removal of finished jobs from the database and the keyword index."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, text

from paicluster.store import Store, jobs, removal
from paicluster.store.jobs import JobQuery, NewJob
from paicluster.store.sqlite_sql import INDEX_BATCH


def found(store: Store, keyword: str) -> int:
    page = store.read_sync(
        lambda conn: jobs.list_jobs(conn, JobQuery(keyword=keyword, with_total=True, limit=0))
    )
    assert page.total is not None
    return page.total


def test_removed_jobs_are_no_longer_found_by_keyword(store: Store, new_job: Callable[..., NewJob]) -> None:
    count = INDEX_BATCH + 20  # some are indexed, some not yet
    made = store.write_sync(lambda conn: jobs.insert_jobs(conn, [new_job(f"job_{n}") for n in range(count)]))
    ids = [one.id for one in made]
    assert found(store, "job_") == count
    store.write_sync(
        lambda conn: [jobs.update_job(conn, job, sub_state="Completed", completed_ms=1) for job in ids[:-1]]
    )
    chosen = ids[10:20] + ids[-10:]
    # One of them is unfinished, and stays.
    assert store.write_sync(lambda conn: removal.delete_jobs(conn, chosen)) == len(chosen) - 1
    assert found(store, "job_") == count - len(chosen) + 1
    assert found(store, "job_1") > 0
    again = store.write_sync(
        lambda conn: jobs.insert_jobs(conn, [new_job(f"job_{n}") for n in range(10, 20)])
    )
    assert min(one.id for one in again) > ids[-1]
    assert found(store, "job_") == count - len(chosen) + 11
    store.write_sync(check_index)


def check_index(conn: Connection) -> None:
    """SQLite's index is maintained by us."""
    if conn.dialect.name == "sqlite":
        conn.execute(text("INSERT INTO job_search (job_search) VALUES ('integrity-check')")).close()
