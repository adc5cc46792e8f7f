"""Run the migrations over an open connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def alembic_config(conn: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = conn
    return config


def upgrade(
    conn: Connection, revision: str, *, has_broken_references: Callable[[Connection], bool] | None = None
) -> None:
    """Bring the schema to ``revision``: all steps in one transaction, or none.

    ``has_broken_references``: checked before the commit, where the database does not.
    """
    config = alembic_config(conn)
    config.attributes["has_broken_references"] = has_broken_references
    command.upgrade(config, revision)
