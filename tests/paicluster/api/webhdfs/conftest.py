"""One running cluster for all tests of WebHDFS; each test has a folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.webhdfs_client import (
    StorageCluster,
    Web,
    alice_fixture,  # noqa: F401
    prepare_home,
    start_cluster,
    storage_cluster,  # noqa: F401
)


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., StorageCluster]]:
    """Makes a cluster of the test's own, with these lines in its file."""
    made: list[StorageCluster] = []

    def make(settings: str = "", *options: str) -> StorageCluster:
        home = tmp_path / "own"
        prepare_home(home)
        if settings:
            (home / "cluster.yaml").write_text(settings)
        made.append(start_cluster(home, *options))
        return made[-1]

    yield make
    for running in made:
        running.close()


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
