"""One running cluster for all tests of this room; each test has a folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hdfsclient import PASSWORD, PEOPLE, TEAM, StorageCluster, Web

from paicluster.auth.passwords import hash_password
from paicluster.store import Store, groups, users


def _prepare(home: Path) -> None:
    home.mkdir()
    store = Store.open(home / "cluster.db")
    hashed = hash_password(PASSWORD)
    for who in PEOPLE:
        admin = who == "admin"
        store.write_sync(lambda conn, w=who, a=admin: users.add_user(conn, w, hashed, created_ms=0, admin=a))
    store.write_sync(lambda conn: groups.add_group(conn, TEAM))
    for who in ("alice", "bob"):
        store.write_sync(lambda conn, w=who: groups.add_member(conn, w, TEAM))
    store.close()


def _start(home: Path, *options: str) -> StorageCluster:
    limits = ("--cpus", "2", "--memory-mb", "512", "--gpus", "0")
    running = StorageCluster(home, ("--allow-shared-account", *limits, *options))
    running.start()
    running.tokens = {who: running.log_in(who) for who in PEOPLE}
    running.user, running.token = "alice", running.tokens["alice"]
    for who in PEOPLE:
        running.person(who).json("GETHOMEDIRECTORY", "/")
    return running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageCluster]:
    home = tmp_path_factory.mktemp("webhdfs") / "home"
    _prepare(home)
    running = _start(home)
    yield running
    running.close()


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., StorageCluster]]:
    """Makes a cluster of the test's own, with these lines in its file."""
    made: list[StorageCluster] = []

    def make(settings: str = "", *options: str) -> StorageCluster:
        home = tmp_path / "own"
        _prepare(home)
        if settings:
            (home / "cluster.yaml").write_text(settings)
        made.append(_start(home, *options))
        return made[-1]

    yield make
    for running in made:
        running.close()


@pytest.fixture
def alice(cluster: StorageCluster) -> Web:
    return cluster.person("alice")


@pytest.fixture
def bob(cluster: StorageCluster) -> Web:
    return cluster.person("bob")


@pytest.fixture
def admin(cluster: StorageCluster) -> Web:
    return cluster.person("admin")


@pytest.fixture
def nobody(cluster: StorageCluster) -> Web:
    return Web(cluster, None)


_numbers = itertools.count()


@pytest.fixture
def folder(alice: Web) -> str:
    """A folder of alice's that no other test uses."""
    path = f"/user/alice/t{next(_numbers)}"
    assert alice.put("MKDIRS", path).json() == {"boolean": True}
    return path


@pytest.fixture
def staged(cluster: StorageCluster) -> Callable[[], list[str]]:
    """The uploads that lie aside."""
    aside = cluster.home / "storage/.pai/staged"
    return lambda: [file.name for file in aside.iterdir()]
