"""Which clients the key of a job is accepted from while its user is disabled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.users import set_disabled
from paicluster.engines.interface import Node
from paicluster.ssh import authorization
from paicluster.ssh.authorization import JobAuthorization, OpenedJob, Target
from paicluster.store import Store, jobs, users
from paicluster.store.rows import TaskRow
from paiprotocol.jobs import read_job
from support.prepared_database import prepare_database
from support.server_fixture import job

# Of the block for documentation: no machine has one of these.
RUNNING, ENDED, ELSEWHERE, REPORTED = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
# The last one has an address which is not what its task reported.
NODES = [Node(f"node{n}", ip, 1, 1000) for n, ip in enumerate(("127.0.0.1", RUNNING, ENDED, "192.0.2.5"))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With a job of alice, of which one task runs on this machine, and others elsewhere."""
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db", render_summary)
    opened.write_sync(lambda conn: users.add_user(conn, "alice", "hash", created_ms=0))
    opened.write_sync(
        lambda conn: jobs.insert_jobs(conn, [jobs.NewJob("alice", "job", "default", "", "{}", 0)])
    )
    states = (
        ("127.0.0.1", "AttemptRunning"),
        (RUNNING, "AttemptRunning"),
        (ENDED, "Completed"),
        (REPORTED, "AttemptRunning"),
    )
    tasks = [
        TaskRow(
            f"u{n}",
            1,
            0,
            "main",
            0,
            n,
            0,
            f"t{n}",
            state,
            node=f"node{n}",
            ip=ip,
            created_ms=1,
            launched_ms=1,
        )
        for n, (ip, state) in enumerate(states)
    ]
    opened.write_sync(lambda conn: jobs.insert_tasks(conn, tasks))
    yield opened
    opened.close()


def test_key_of_a_disabled_user_s_job_is_accepted_from_its_tasks_only(store: Store, tmp_path: Path) -> None:
    keys = SshKeys.open(tmp_path / "keys")
    found_by = JobAuthorization(store, keys, lambda: NODES)
    row = store.read_sync(lambda conn: jobs.get_job(conn, "alice~job"))
    assert row is not None

    def opened(address: str) -> bool | None:
        """Whether it is for a task; None if it is refused."""
        target = Target.parse("alice~job")
        found: OpenedJob | None = asyncio.run(found_by.find_job(target, keys.of_job(row).public, address))
        return None if found is None else found.is_for_task

    clients = (RUNNING, f"::ffff:{RUNNING}", ENDED, ELSEWHERE, REPORTED, "127.0.0.1", "", "no address")
    assert [opened(client) for client in clients] == [True, True, *[False] * 6]
    store.write_sync(lambda conn: set_disabled(conn, "alice", True))
    assert [opened(client) for client in clients] == [True, True, *[None] * 6]


@pytest.mark.parametrize(("name", "is_known"), [("localhost", True), ("no-such-name.invalid", False)])
def test_node_known_by_a_name_has_the_addresses_of_that_name(name: str, is_known: bool) -> None:
    node = Node("n1", name, 1, 1000)
    assert ("127.0.0.1" in authorization._addresses_of(node)) is is_known


LISTED, OF_PROFILE, OTHER = ("ssh-ed25519 " + letter * 40 for letter in "abc")


def test_text_of_a_job_is_parsed_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key that a stranger offers asks whether the job lists it."""
    plugin = {"plugin": "ssh", "parameters": {"userssh": {"type": "custom", "value": f"# mine\n{LISTED} x"}}}
    text = json.dumps(job("keys", "true", extras={"com.microsoft.pai.runtimeplugin": [plugin]}))
    store.write_sync(
        lambda conn: jobs.insert_jobs(conn, [jobs.NewJob("alice", "keys", "default", "", text, 0)])
    )
    parsed: list[str] = []

    def read_and_count(text: str, **options: Any) -> Any:
        parsed.append(text)
        return read_job(text, **options)

    monkeypatch.setattr(authorization, "read_job", read_and_count)
    found = JobAuthorization(store, SshKeys.open(tmp_path / "keys"), lambda: NODES)

    def opens(key: str) -> bool:
        return asyncio.run(found.find_job(Target.parse("alice~keys"), key, ELSEWHERE)) is not None

    assert [opens(key) for key in (LISTED, OF_PROFILE, OTHER)] == [True, False, False]
    # Keys of the profile are read each time.
    profile = json.dumps({"sshKeys": [{"title": "t", "value": OF_PROFILE}]})
    store.write_sync(lambda conn: users.update_user(conn, "alice", extension=profile))
    assert [opens(key) for key in (LISTED, OF_PROFILE, OTHER)] == [True, True, False]
    assert parsed == [text]
