"""Who gets nothing for too long."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from paicluster.controller.active_jobs import read_active, waiting_since
from paicluster.controller.starvation import StarvationGuard
from paicluster.store import Store, jobs
from paicluster.store.jobs import NewJob


def test_a_user_is_overdue_when_nothing_of_his_started_for_too_long() -> None:
    patience = StarvationGuard(too_long_s=10)
    both = [("default", "ann"), ("default", "bob")]
    assert not patience.starved(both, now=100)
    patience.started("default", "bob")
    assert not patience.starved(both, now=105)
    assert patience.starved(both, now=111) == {("default", "ann")}
    patience.started("default", "ann")
    assert not patience.starved(both, now=112)


def test_who_does_not_wait_any_more_begins_anew() -> None:
    patience = StarvationGuard(too_long_s=10)
    patience.starved([("lab", "ann")], now=0)
    patience.starved([], now=5)
    assert not patience.starved([("lab", "ann")], now=20)


def test_who_waited_before_is_not_asked_to_wait_anew() -> None:
    patience = StarvationGuard(too_long_s=10)
    patience.resume({("lab", "ann"): 91.0, ("lab", "bob"): 99.0})
    assert patience.starved([("lab", "ann"), ("lab", "bob"), ("lab", "cat")], now=102) == {("lab", "ann")}


def test_since_when_somebody_waits_follows_from_his_jobs(tmp_path: Path) -> None:
    def new(user: str, name: str, submission_ms: int) -> NewJob:
        return NewJob(user, name, "lab", "protocolVersion: 2", "{}", submission_ms)

    def fill(conn: Connection) -> None:
        jobs.insert_jobs(
            conn, [new("ann", "a", 5000), new("ann", "b", 1000), new("bob", "c", 1000), new("bob", "d", 2000)]
        )
        jobs.update_job(conn, 3, sub_state="Completed", exit_code=0, launched_ms=7000, completed_ms=8000)

    store = Store.open(tmp_path / "cluster.db")
    try:
        store.write_sync(fill)
        waiting, _ = store.read_sync(read_active)
        # Bob got something at 7000; what ended long before is not looked at.
        assert store.read_sync(lambda conn: waiting_since(conn, waiting, (), 0)) == {
            ("lab", "ann"): 1000,
            ("lab", "bob"): 7000,
        }
        assert store.read_sync(lambda conn: waiting_since(conn, waiting, (), 9000))["lab", "bob"] == 2000
    finally:
        store.close()
