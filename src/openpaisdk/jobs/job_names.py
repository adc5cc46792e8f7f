"""Job names: checked, or made up."""

from __future__ import annotations

import os

from openpaisdk.errors import UsageError

LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # none that look alike, 32 of them
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


def random_letters(count: int) -> str:
    return "".join(LETTERS[b & 31] for b in os.urandom(count))


def generate_name(command: str) -> str:
    """A name for a job nobody named: what it runs, and a few letters that make it unique."""
    return f"{_word(command)}_{random_letters(6)}"


def fill_placeholders(name: str) -> str:
    """Each ``$`` in a name becomes letters that make it unique."""
    while "$" in name:
        name = name.replace("$", random_letters(8), 1)
    return name


def expand_name(name: str) -> str:
    """A name with each ``$`` filled in; what comes out must be a name."""
    name = fill_placeholders(name)
    if not name or len(name) > MAX_LENGTH or not ALLOWED.issuperset(name):
        raise UsageError(
            f"{name!r} cannot be a job's name: use letters, digits, _ and - (at most {MAX_LENGTH})."
        )
    return name


def _word(command: str) -> str:
    """The word a person would call the command by: ``train`` for ``python -u src/train.py --lr 1``."""
    python = False
    for piece in command.replace("'", " ").replace('"', " ").split():
        if python and piece == "-c":
            return "python_c"  # what follows is code, and no word of it is a name
        if piece.startswith("-") or "=" in piece:
            continue
        stem, _, kind = os.path.basename(piece).partition(".")
        kept = "".join(c for c in stem if c in ALLOWED).strip("_-")[:40]
        wraps = kept.rstrip("0123456789") in WRAPPERS and not kind.isalpha()  # python3.11, but not run.sh
        if kept and not wraps:
            return kept
        python = kept.rstrip("0123456789") == "python"
    return "job"
