"""Names of sbatch options, and those that only the Slurm engine may set."""

from __future__ import annotations

import re

EXAMPLE = "--constraint=a100"

# Set by the engine alone: they decide whose job it is, what it runs and how often.
_RESERVED = (
    "uid",
    "gid",
    "comment",
    "array",
    "wrap",
    "wait",
    "test-only",
    "clusters",
    "requeue",
    "output",
    "error",
    "input",
    "parsable",
    "chdir",
    "export",
    "export-file",
)


def option_name(argument: str) -> str:
    """The name of a long option; empty if the argument is not a single long option.

    Short options are not accepted: one argument may combine several.
    """
    long = re.match(r"--([a-z-]*[a-z])(?:=|$)", argument)
    return long[1] if long is not None and argument.isprintable() else ""


def matches_any(name: str, options: tuple[str, ...]) -> bool:
    """Whether sbatch may read a name as one of these options: it accepts unambiguous prefixes."""
    return any(option.startswith(name) for option in options)


def is_reserved(name: str) -> bool:
    return matches_any(name, _RESERVED)
