"""Which clients the key of a job is accepted from while its user is disabled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.users import set_disabled
from paicluster.ssh.authorization import JobAuthorization, OpenedJob, Target
from paicluster.store import Store, jobs, users
from paicluster.store.rows import TaskRow
from support.prepared_database import prepare_database

# Of the block for documentation: no machine has one of these.
RUNNING, ENDED, ELSEWHERE = "192.0.2.1", "192.0.2.2", "192.0.2.3"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With a job of alice, of which one task runs on this machine and one elsewhere."""
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db")
    opened.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    opened.write_sync(
        lambda conn: jobs.insert_jobs(conn, [jobs.NewJob("alice", "job", "default", "", "{}", 0)])
    )
    states = (("127.0.0.1", "AttemptRunning"), (RUNNING, "AttemptRunning"), (ENDED, "Completed"))
    tasks = [
        TaskRow(f"u{n}", 1, 0, "main", 0, n, 0, f"t{n}", state, ip=ip, created_ms=1, launched_ms=1)
        for n, (ip, state) in enumerate(states)
    ]
    opened.write_sync(lambda conn: jobs.insert_tasks(conn, tasks))
    yield opened
    opened.close()


def test_key_of_a_disabled_user_s_job_is_accepted_from_its_tasks_only(store: Store, tmp_path: Path) -> None:
    keys = SshKeys.open(tmp_path / "keys")
    authorization = JobAuthorization(store, keys)
    row = store.read_sync(lambda conn: jobs.get_job(conn, "alice~job"))
    assert row is not None

    def opened(address: str) -> bool | None:
        """Whether it is for a task; None if it is refused."""
        target = Target.parse("alice~job")
        found: OpenedJob | None = asyncio.run(
            authorization.find_job(target, keys.of_job(row).public, address)
        )
        return None if found is None else found.is_for_task

    clients = (RUNNING, f"::ffff:{RUNNING}", ENDED, ELSEWHERE, "127.0.0.1", "", "no address")
    assert [opened(client) for client in clients] == [True, True, False, False, False, False, False]
    store.write_sync(lambda conn: set_disabled(conn, "alice", True))
    assert [opened(client) for client in clients] == [True, True, None, None, None, None, None]
