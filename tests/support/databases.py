"""An empty database of a cluster, of each kind that a store can use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paicluster.store import Store
from paicluster.store.address import DatabaseAddress
from support.postgresql_server import PostgresqlServer
from support.prepared_database import prepare_database

KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.service))

# By server: a database with the tables.
_templates: dict[int, str] = {}


@pytest.fixture(name="database", params=KINDS)
def database_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | DatabaseAddress]:
    """Where `Store.open` finds it."""
    with database_of(request, tmp_path) as database:
        yield database


@contextmanager
def database_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path | DatabaseAddress]:
    """For a fixture with the parameters `KINDS`."""
    if request.param == "sqlite":
        prepare_database(folder)
        yield folder / "cluster.db"
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    name = new_database(server)
    yield DatabaseAddress(server.url(name))
    server.drop_database(name)


def new_database(server: PostgresqlServer) -> str:
    """A database with the tables of a cluster that was never started; its name."""
    template = _templates.get(server.port)
    if template is None:
        template = _templates[server.port] = server.new_database()
        Store.open(DatabaseAddress(server.url(template))).close()
    return server.new_database(template)
