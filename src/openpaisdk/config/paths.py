"""Where settings lie."""

from __future__ import annotations

import os

from openpaisdk.errors import ConfigError

FOLDER = ".openpai"


def user_folder() -> str:
    """``~/.openpai``. Asked each time: a test, or sudo, may have moved HOME."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise ConfigError(
            "There is no home folder: HOME names none, and this account has none of its own.",
            hint="Name a folder that is yours: export HOME=/some/folder",
        )
    return os.path.join(home, FOLDER)


def project_folder() -> str:
    """``./.openpai``: settings of the project a person stands in."""
    return os.path.join(os.getcwd(), FOLDER)


def make_private(folder: str) -> None:
    """Make a folder only its owner may enter; parents too, where they are missing."""
    os.makedirs(folder, mode=0o700, exist_ok=True)


def display_path(path: str) -> str:
    """A path as a person writes it: ``~`` for the home folder."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + os.sep) else path
