"""Paths of the settings."""

from __future__ import annotations

import os

from paiprotocol.errors import ConfigError

FOLDER = ".openpai"


def user_folder() -> str:
    """``~/.openpai``. Evaluated each time: tests and sudo change HOME."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise ConfigError(
            "There is no home folder: HOME is not set, and this account has none.",
            hint="Set HOME to a folder you own: export HOME=/some/folder",
        )
    return os.path.join(home, FOLDER)


def project_folder() -> str:
    """``./.openpai``: settings of the current project."""
    return os.path.join(os.getcwd(), FOLDER)


def make_private(folder: str) -> None:
    """Create a folder that only its owner may enter, with missing parents."""
    os.makedirs(folder, mode=0o700, exist_ok=True)


def display_path(path: str) -> str:
    """A path for messages: ``~`` for the home folder."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + os.sep) else path
