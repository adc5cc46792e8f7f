"""A store in each kind of database, and jobs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store
from paicluster.store.address import DatabaseAddress
from paicluster.store.jobs import NewJob
from support.databases import database_fixture  # noqa: F401
from support.prepared_database import prepare_database


@pytest.fixture
def store(database: Path | DatabaseAddress) -> Iterator[Store]:
    opened = Store.open(database, render_summary)
    yield opened
    opened.close()


@pytest.fixture
def store_in_a_file(tmp_path: Path) -> Iterator[Store]:
    """Of SQLite, in `cluster.db`: for tests that look at the file."""
    prepare_database(tmp_path)
    opened = Store.open(tmp_path / "cluster.db", render_summary)
    yield opened
    opened.close()


@pytest.fixture
def new_job() -> Callable[..., NewJob]:
    def make(name: str = "job", username: str = "alice", **fields: object) -> NewJob:
        values: dict[str, object] = {
            "vc": "default",
            "config": "protocolVersion: 2",
            "job": "{}",
            "submission_ms": 1_700_000_000_123,
            **fields,
        }
        return NewJob(username, name, **values)  # type: ignore[arg-type]

    return make
