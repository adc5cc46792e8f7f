"""Alembic environment. Only loaded through :mod:`paicluster.store.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from paicluster.store import sqlite
from paicluster.store.new_database import VERSION_TABLE
from paicluster.store.tables import metadata
from paiprotocol.errors import StoreError

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    # SQLite's DDL is transactional when the driver issues no implicit BEGIN, as with our engine.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
    if sqlite.broken_foreign_keys(connection):
        raise StoreError(
            "The upgrade of the cluster's database left rows with broken foreign keys; nothing was changed."
        )
