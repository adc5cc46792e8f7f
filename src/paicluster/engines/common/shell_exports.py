"""Environment variables as shell exports: those that a gang shares are written once for all tasks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

# A shell needs these before it reads a file.
_START_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


def can_be_exported(name: str) -> bool:
    """Whether a shell accepts a variable of this name; other programs accept any."""
    return name.isascii() and name.isidentifier()


def exports(variables: Mapping[str, str], exclude: Collection[str] = ()) -> str:
    """Export lines; ``exclude``: variables of which some task has its own value."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if can_be_exported(name) and name not in exclude
    )


def not_exportable(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that cannot be exported by a file: the shell needs them earlier, or rejects their names."""
    for name, value in variables.items():
        if name in _START_VARIABLES or not can_be_exported(name):
            yield name, value
