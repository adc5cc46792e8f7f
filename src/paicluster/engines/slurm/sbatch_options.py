"""Options of sbatch that jobs and clusters may give beside those that the Slurm engine gives itself."""

from __future__ import annotations

import re

EXAMPLE = "--constraint=a100"

# What decides who runs what, and how often, is for nobody else to say.
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
    """What an option is called; empty for what is no single option by its long name.

    Of short ones several can stand in one word, so that it is hard to say what it asks for.
    """
    long = re.match(r"--([a-z-]*[a-z])(?:=|$)", argument)
    return long[1] if long is not None and argument.isprintable() else ""


def matches_any(name: str, options: tuple[str, ...]) -> bool:
    """sbatch takes any beginning of a name that is the only one of its kind."""
    return any(one.startswith(name) for one in options)


def is_reserved(name: str) -> bool:
    return matches_any(name, _RESERVED)
