"""Job names: validation, generation, placeholders."""

from __future__ import annotations

import os

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 characters, without ones that look alike
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
MAX_LENGTH = 255
WRAPPERS = frozenset(
    (
        "python",
        "python3",
        "bash",
        "sh",
        "env",
        "time",
        "nohup",
        "nice",
        "torchrun",
        "accelerate",
        "uv",
        "conda",
        "run",
    )
)


class NamedJob:
    """Base class of job objects: where a job is named, a program may give the job itself."""

    name: str


def random_letters(count: int) -> str:
    return "".join(LETTERS[b & 31] for b in os.urandom(count))


def generate_name(command: str) -> str:
    """Name for a job submitted without one: its program and a random suffix."""
    return f"{_program_name(command)}_{random_letters(6)}"


def fill_placeholders(name: str) -> str:
    """Replace each ``$`` in a name by random letters that make it unique."""
    while "$" in name:
        name = name.replace("$", random_letters(8), 1)
    return name


def is_valid_name(name: str) -> bool:
    # A command line takes a name that begins with "-" for an option.
    return 0 < len(name) <= MAX_LENGTH and ALLOWED.issuperset(name) and name[0] != "-"


def expand_name(name: str) -> str:
    """A name with each ``$`` replaced, validated."""
    name = fill_placeholders(name)
    if not is_valid_name(name):
        raise UsageError(
            f"{name!r} is not a valid job name: use letters, digits, _ and - (at most {MAX_LENGTH}), "
            "and do not begin with -."
        )
    return name


def names_of_jobs(jobs: Any) -> Any:
    """The value of an option that names jobs, where a program may have given the jobs themselves."""
    if isinstance(jobs, NamedJob):
        return jobs.name
    if isinstance(jobs, list | tuple | set):
        return [job.name if isinstance(job, NamedJob) else job for job in jobs]
    return jobs


def _program_name(command: str) -> str:
    """Short name of a command: ``train`` for ``python -u src/train.py --lr 1``."""
    python = False
    for argument in command.replace("'", " ").replace('"', " ").split():
        if python and argument == "-c":
            return "python_c"  # the next argument is code, not a name
        if argument.startswith("-") or "=" in argument:
            continue
        stem, _, extension = os.path.basename(argument).partition(".")
        kept = "".join(c for c in stem if c in ALLOWED).strip("_-")[:40]
        is_wrapper = (
            kept.rstrip("0123456789") in WRAPPERS and not extension.isalpha()
        )  # python3.11, but not run.sh
        if kept and not is_wrapper:
            return kept
        python = kept.rstrip("0123456789") == "python"
    return "job"
