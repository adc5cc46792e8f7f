"""Alembic environment. Only loaded through :mod:`paicluster.store.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from paicluster.store.new_database import VERSION_TABLE
from paicluster.store.tables import metadata
from paiprotocol.errors import StoreError

connection = context.config.attributes["connection"]
has_broken_references = context.config.attributes.get("has_broken_references")
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    # PostgreSQL's DDL is transactional, and so is SQLite's when the driver issues no implicit BEGIN, as with
    # our engine.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
    if has_broken_references is not None and has_broken_references(connection):
        raise StoreError(
            "The upgrade of the cluster's database left rows with broken foreign keys; nothing was changed."
        )
