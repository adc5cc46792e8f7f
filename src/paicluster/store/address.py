"""Address of a database that is not a file in the home."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paiprotocol.errors import ConfigError

PASSWORD_VARIABLE = "PAICLUSTER_DATABASE_PASSWORD"


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """``url`` is one of libpq's, without a password: cluster.yaml is no place for it.

    ``may_create``: the tables are created in an empty database; otherwise it is an error.
    """

    url: str
    password_file: Path | None = None
    may_create: bool = True

    def password(self) -> str | None:
        """From the file, or else the environment; None: as libpq finds one (~/.pgpass), or none is needed."""
        if self.password_file is None:
            return os.environ.get(PASSWORD_VARIABLE)
        try:
            password = self.password_file.read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise ConfigError(
                f"The password file of the database, {self.password_file}, cannot be read: {reason}."
            ) from None
        if not password:
            raise ConfigError(f"The password file of the database, {self.password_file}, is empty.")
        return password

    def __str__(self) -> str:
        # Options as TLS files, which no message needs.
        return self.url.partition("?")[0]
