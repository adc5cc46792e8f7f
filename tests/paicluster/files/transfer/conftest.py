"""One cluster with `admin`, `alice` and `bob`, and a storage without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.files import Storage
from support.cluster_storage import ALICE
from support.team_cluster import storage_team  # noqa: F401


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """Storage without a cluster, with the home of one user."""
    opened = Storage(tmp_path / "storage")
    opened.provision(ALICE)
    yield opened
    opened.close()
