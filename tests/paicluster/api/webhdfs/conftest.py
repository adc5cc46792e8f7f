"""One cluster for all WebHDFS tests; each test has its own folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.webhdfs_client import (
    StorageCluster,
    WebHdfsClient,
    alice_fixture,  # noqa: F401
    prepare_home,
    start_cluster,
    storage_cluster,  # noqa: F401
)


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., StorageCluster]]:
    """Factory of clusters for one test, with these lines in `cluster.yaml`."""
    started: list[StorageCluster] = []

    def start(settings: str = "", *options: str) -> StorageCluster:
        home = tmp_path / "own"
        prepare_home(home)
        if settings:
            (home / "cluster.yaml").write_text(settings)
        started.append(start_cluster(home, *options))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.fixture
def bob(cluster: StorageCluster) -> WebHdfsClient:
    return cluster.client("bob")


@pytest.fixture
def admin(cluster: StorageCluster) -> WebHdfsClient:
    return cluster.client("admin")


@pytest.fixture
def anonymous(cluster: StorageCluster) -> WebHdfsClient:
    return WebHdfsClient(cluster, None)


_numbers = itertools.count()


@pytest.fixture
def folder(alice: WebHdfsClient) -> str:
    """A folder of alice's that no other test uses."""
    path = f"/user/alice/t{next(_numbers)}"
    assert alice.put("MKDIRS", path).json() == {"boolean": True}
    return path


@pytest.fixture
def staged(cluster: StorageCluster) -> Callable[[], list[str]]:
    """Names of the staging files."""
    staging = cluster.home / "storage/.pai/staged"
    return lambda: [file.name for file in staging.iterdir()]
