"""The file of a cluster's database, for commands that work on files only."""

from __future__ import annotations

from pathlib import Path

from paicluster.config.settings import Settings
from paiprotocol.errors import ConfigError


def database_file(settings: Settings, advice: str) -> Path:
    """The file; ConfigError with the advice where the database is that of a server."""
    if settings.database_url is not None:
        raise ConfigError(f"The cluster's database is on a server: {settings.database_url}.", hint=advice)
    return settings.database_file
