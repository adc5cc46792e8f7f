"""One running cluster with three people (`admin`, `alice`, `bob`) for all tests of this room."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from team import PASSWORD, PEOPLE, TeamCluster

from described import Description
from paicluster.auth.passwords import hash_password
from paicluster.store import Store, users


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamCluster]:
    home = tmp_path_factory.mktemp("api") / "home"
    home.mkdir()
    store = Store.open(home / "cluster.db")
    hashed = hash_password(PASSWORD)
    for who in PEOPLE:
        admin = who == "admin"
        store.write_sync(lambda conn, w=who, a=admin: users.add_user(conn, w, hashed, created_ms=0, admin=a))
    store.close()
    running = TeamCluster(
        home, ("--allow-shared-account", "--cpus", "64", "--memory-mb", "65536", "--gpus", "4")
    )
    try:
        running.start()
        running.description = Description(running.get("/openapi.json", token=None).json())
        running.tokens = {who: running.log_in(who) for who in PEOPLE}
        running.user, running.token = "alice", running.tokens["alice"]
        yield running
    finally:
        running.close()


_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A job name nobody has used."""
    return f"{request.node.originalname[5:45]}-{next(_numbers)}"
