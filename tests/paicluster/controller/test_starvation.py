"""Starvation guard: users without a start for too long."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from paicluster.api.v2.job_summaries import render_summary
from paicluster.controller.active_jobs import pending_since, read_active
from paicluster.controller.starvation import StarvationGuard
from paicluster.store import Store, jobs
from paicluster.store.jobs import NewJob
from support.prepared_database import prepare_database


def test_user_without_a_start_for_too_long_is_starved() -> None:
    guard = StarvationGuard(after_s=10)
    both = [("default", "ann"), ("default", "bob")]
    assert not guard.starved(both, now=100)
    guard.started("default", "bob")
    assert not guard.starved(both, now=105)
    assert guard.starved(both, now=111) == {("default", "ann")}
    guard.started("default", "ann")
    assert not guard.starved(both, now=112)


def test_wait_is_reset_when_a_user_has_no_pending_jobs() -> None:
    guard = StarvationGuard(after_s=10)
    guard.starved([("lab", "ann")], now=0)
    guard.starved([], now=5)
    assert not guard.starved([("lab", "ann")], now=20)


def test_waits_continue_after_a_restart() -> None:
    guard = StarvationGuard(after_s=10)
    guard.resume({("lab", "ann"): 91.0, ("lab", "bob"): 99.0})
    assert guard.starved([("lab", "ann"), ("lab", "bob"), ("lab", "cat")], now=102) == {("lab", "ann")}


def test_start_of_the_wait_follows_from_the_jobs(tmp_path: Path) -> None:
    def new(user: str, name: str, submission_ms: int) -> NewJob:
        return NewJob(user, name, "lab", "protocolVersion: 2", "{}", submission_ms)

    def fill(conn: Connection) -> None:
        jobs.insert_jobs(
            conn, [new("ann", "a", 5000), new("ann", "b", 1000), new("bob", "c", 1000), new("bob", "d", 2000)]
        )
        jobs.update_job(conn, 3, sub_state="Completed", exit_code=0, launched_ms=7000, completed_ms=8000)

    prepare_database(tmp_path)
    store = Store.open(tmp_path / "cluster.db", render_summary)
    try:
        store.write_sync(fill)
        pending, _ = store.read_sync(read_active)
        # A job of bob started at 7000; jobs that ended before the limit are not read.
        assert store.read_sync(lambda conn: pending_since(conn, pending, (), 0)) == {
            ("lab", "ann"): 1000,
            ("lab", "bob"): 7000,
        }
        assert store.read_sync(lambda conn: pending_since(conn, pending, (), 9000))["lab", "bob"] == 2000
    finally:
        store.close()
