"""A new password: typed twice at a terminal, or the first line that comes in; never on the command line."""

from __future__ import annotations

import getpass
import sys

from openpaisdk.errors import UsageError

SHORTEST = 6


def new_password(username: str) -> str:
    if sys.stdin.isatty():
        password = getpass.getpass(f"New password of {username}: ")
        if getpass.getpass("Once more: ") != password:
            raise UsageError("The two are not the same; nothing was changed.")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < SHORTEST:
        raise UsageError(
            f"A password has at least {SHORTEST} characters; nothing was changed.",
            hint="" if sys.stdin.isatty() else "It is read from the first line of the standard input.",
        )
    return password
