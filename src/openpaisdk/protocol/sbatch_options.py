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


def name_of(word: str) -> str:
    """What an option is called; empty for what is no single option by its long name.

    Of short ones several can stand in one word, so that it is hard to say what it asks for.
    """
    long = re.match(r"--([a-z-]*[a-z])(?:=|$)", word)
    return long[1] if long is not None and word.isprintable() else ""


def is_one_of(name: str, some: tuple[str, ...]) -> bool:
    """sbatch takes any beginning of a name that is the only one of its kind."""
    return any(one.startswith(name) for one in some)


def is_reserved(name: str) -> bool:
    return is_one_of(name, _RESERVED)
