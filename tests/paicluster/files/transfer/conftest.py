"""One cluster with `admin`, `alice` and `bob` for all tests of this room."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "api"))

from storages_of import ALICE
from team import PASSWORD, PEOPLE, TeamCluster

from paicluster.auth.passwords import hash_password
from paicluster.files import Storage
from paicluster.store import Store, users


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    home = tmp_path_factory.mktemp("transfer") / "home"
    home.mkdir()
    store = Store.open(home / "cluster.db")
    hashed = hash_password(PASSWORD)
    for who in PEOPLE:
        admin = who == "admin"
        store.write_sync(lambda conn, w=who, a=admin: users.add_user(conn, w, hashed, created_ms=0, admin=a))
    store.close()
    running = TeamCluster(home, ("--cpus", "4", "--memory-mb", "4096", "--allow-shared-account"))
    try:
        running.start()
        running.tokens = {who: running.log_in(who) for who in PEOPLE}
        running.user, running.token = "alice", running.tokens["alice"]
        yield running
    finally:
        running.close()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """A cluster's own, without a cluster, with the home of one person."""
    made = Storage(tmp_path / "storage")
    made.welcome(ALICE)
    yield made
    made.close()
