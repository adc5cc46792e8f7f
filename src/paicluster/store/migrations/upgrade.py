"""Run the migrations over an open connection."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def alembic_config(conn: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = conn
    return config


def upgrade(conn: Connection, revision: str) -> None:
    """Bring the schema to ``revision``: all steps in one transaction, or none."""
    command.upgrade(alembic_config(conn), revision)
