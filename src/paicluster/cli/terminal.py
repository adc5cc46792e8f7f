"""Terminal input and output of the administrator's commands: tables, JSON, passwords."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from paiprotocol.errors import UsageError

MIN_PASSWORD_LENGTH = 6


def output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="output format (default: table)"
    )


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], output: str) -> None:
    """Print rows as a table or as JSON. ``columns``: heading and key of each column; JSON has all keys."""
    if output == "json":
        json.dump(list(rows), sys.stdout, indent=2)
        print()
        return
    lines = [tuple(columns), *(tuple(_text(row.get(key)) for key in columns.values()) for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return printable(str(value))


def printable(text: str) -> str:
    """Escape control characters: names are users' texts, and must not move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def read_new_password(username: str) -> str:
    """A new password: typed twice at a terminal, else the first line of standard input; never an option."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"New password of {username}: ")
        if getpass.getpass("Repeat the password: ") != password:
            raise UsageError("The two passwords differ; nothing was changed.")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < MIN_PASSWORD_LENGTH:
        raise UsageError(
            f"A password has at least {MIN_PASSWORD_LENGTH} characters; nothing was changed.",
            hint="" if sys.stdin.isatty() else "It is read from the first line of standard input.",
        )
    return password
