"""Move of a database from a file to PostgreSQL: all rows, interruptions, what refuses to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.cli import main
from paicluster.server.home_lock import lock_home
from paicluster.store import Store, jobs, users
from paicluster.store.address import DatabaseAddress
from paicluster.store.jobs import JobQuery, NewJob
from paicluster.store.metric_rows import MetricPart, MetricValues, add_parts, metrics_of
from paicluster.store.rows import AttemptRow, TaskRow
from paiprotocol.errors import StoreError
from support.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.service

JOBS = 30


@pytest.fixture
def url(postgresql_server: PostgresqlServer) -> str:
    return postgresql_server.url(postgresql_server.new_database())


@pytest.fixture
def home(tmp_path: Path, new_job: Callable[..., NewJob]) -> Path:
    """A home with a database that has a row in most tables."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    store = Store.open(folder / "cluster.db", render_summary)
    store.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=1, admin=True))
    new = [
        new_job(f"job_{n}", tags=("ä", "b"), sealed=b"\0\xff", idempotency_key=f"key{n}") for n in range(JOBS)
    ]
    ids = [one.id for one in store.write_sync(lambda conn: jobs.insert_jobs(conn, new))]
    store.write_sync(lambda conn: change(conn, ids))
    store.close()
    return folder


def change(conn, ids: list[int]) -> None:  # type: ignore[no-untyped-def]
    job_id = ids[0]
    task = TaskRow("uid", job_id, 0, "main", 0, 0, 0, "task", "AttemptRunning", cpu=1.5, stop_requested=True)
    jobs.insert_tasks(conn, [task])
    jobs.upsert_attempt(conn, AttemptRow(job_id, 0, "AttemptRunning", diagnostics="line\nline"))
    jobs.add_event(conn, job_id, type="Normal", reason="R", message="ü" * 3000, now_ms=1, source="s")
    values = MetricValues(2, None, 5, float("-inf"), 1, 0.1, 2)
    add_parts(conn, [MetricPart(job_id, "uid", 0, 10, {"loss": values})], 1)
    # The newest id is not used again.
    jobs.update_job(conn, ids[-1], sub_state="Completed", completed_ms=1)
    from paicluster.store.removal import delete_jobs

    assert delete_jobs(conn, ids[-1:]) == 1


def listed(store: Store) -> tuple[bytes, int | None]:
    page = store.read_sync(lambda conn: jobs.list_jobs(conn, JobQuery(with_total=True)))
    return page.summaries, page.total


def migrate(home: Path, url: str) -> int:
    return main(["migrate-store", "--home", str(home), "--to", url])


def test_all_rows_are_copied_and_the_file_is_retired(
    home: Path, url: str, new_job: Callable[..., NewJob], capsys: pytest.CaptureFixture[str]
) -> None:
    old = Store.open(home / "cluster.db", render_summary)
    before = listed(old)
    old.close()
    assert migrate(home, url) == 0
    assert f"Copied {JOBS - 1} jobs and 1 users" in capsys.readouterr().out
    store = Store.open(DatabaseAddress(url), render_summary)
    assert listed(store) == before
    assert store.read_sync(lambda conn: users.get_user(conn, "alice")).admin is True  # type: ignore[union-attr]
    spec = store.read_sync(lambda conn: jobs.job_spec(conn, 1))
    assert spec is not None and spec.sealed == b"\0\xff"
    (metric,) = store.read_sync(lambda conn: metrics_of(conn, 1))
    assert metric.values.min == float("-inf")
    (inserted,) = store.write_sync(lambda conn: jobs.insert_jobs(conn, [new_job("later")]))
    assert inserted.id > JOBS
    (again,) = store.write_sync(
        lambda conn: jobs.insert_jobs(conn, [new_job("job_0", idempotency_key="key0")])
    )
    assert (again.id, again.repeated) == (1, True)
    store.close()
    with pytest.raises(StoreError, match="were moved to a database server"):
        Store.open(home / "cluster.db")


@pytest.mark.parametrize("at", ["Copying tasks.", "Comparing events."])
def test_interrupted_copy_leaves_nothing_and_is_repeated(
    home: Path, url: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paicluster.store.postgresql import database_copy

    def interrupt(line: str) -> None:
        if line == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database_copy.copy_database(home / "cluster.db", DatabaseAddress(url), interrupt)
    store = Store.open(DatabaseAddress(url))
    assert store.read_sync(users.count_users) == 0
    store.close()
    assert migrate(home, url) == 0


def test_copy_that_was_committed_is_only_compared(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paicluster.store import schema_version

    def fail(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(schema_version, "mark_moved", fail)
        assert migrate(home, url) == 130
    assert migrate(home, url) == 0
    assert "has rows already: comparing them" in capsys.readouterr().err


def test_database_with_other_rows_is_refused(
    home: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(DatabaseAddress(url))
    store.write_sync(lambda conn: users.add_user(conn, "bob", "hash", created_ms=1))
    store.close()
    assert migrate(home, url) == 1
    assert "differs" in capsys.readouterr().err
    Store.open(home / "cluster.db").close()


def test_home_of_a_running_server_is_refused(
    home: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock_home(home):
        assert migrate(home, url) == 1
    assert "Another server is running" in capsys.readouterr().err
