"""Variables as words of the shell: what the tasks of a gang have in common is written once for all."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

# A shell needs these before it can read anything.
_START_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


def can_be_exported(name: str) -> bool:
    """Whether a shell can have a variable of that name; other programs can have any."""
    return name.isascii() and name.isidentifier()


def exports(variables: Mapping[str, str], exclude: Collection[str] = ()) -> str:
    """Lines that a shell reads; without those of which some task has one of its own."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if can_be_exported(name) and name not in exclude
    )


def not_exportable(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What must reach the shell some other way: it needs it before it reads, or cannot have it."""
    for name, value in variables.items():
        if name in _START_VARIABLES or not can_be_exported(name):
            yield name, value
