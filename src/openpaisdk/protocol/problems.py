"""What is wrong with a job, told so that the reader can put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from openpaisdk.errors import ProtocolError

Path = tuple[str | int, ...]

MAX_PROBLEMS = 100
"""More than so many are counted, not listed."""
_SHOWN = 40
_MANY = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. ``line`` and ``column`` count from 1; 0 means no text to point at.

    ``level`` is "error"; or "soft": the original accepts it, so a server only warns, while a check of a file
    refuses it; or "note": worth saying, never refused. ``at_key``: the key is the trouble, not its value.
    """

    path: Path
    message: str
    expected: str = ""
    found: str = ""
    suggestion: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    level: Literal["error", "soft", "note"] = "error"
    at_key: bool = False

    @property
    def key(self) -> str:
        """The path as people write it: ``taskRoles.worker.commands[0]``."""
        return key_path(self.path)

    def __str__(self) -> str:
        where = self.file
        if self.line:
            where = f"{where or 'line'}:{self.line}:{self.column}"
        text = ": ".join(part for part in (where, self.key, self.message) if part)
        detail = ", ".join(
            f"{word} {what}" for word, what in (("expected", self.expected), ("found", self.found)) if what
        )
        if detail:
            text = f"{text} ({detail})" if self.message else f"{text}: {detail}"
        return f"{text}; {self.suggestion}" if self.suggestion else text

    def as_dict(self) -> dict[str, Any]:
        """For programs: every field that says something."""
        shown = {
            "key": self.key,
            "message": self.message,
            "expected": self.expected,
            "found": self.found,
            "suggestion": self.suggestion,
            "file": self.file,
            "line": self.line,
            "column": self.column,
        }
        return {name: value for name, value in shown.items() if value}


def key_path(path: Path) -> str:
    """``("taskRoles", "worker", "commands", 0)`` to ``taskRoles.worker.commands[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = shorten(part)
            text += f".{name}" if text else name
    return text


def protocol_error(problems: Iterable[Problem], *, what: str = "job", total: int = 0) -> ProtocolError:
    """One error that carries them all; ``total`` where there are more than are given."""
    every = tuple(problems)
    shown = every[:MAX_PROBLEMS]
    count = max(total, len(every))
    if count == 1:
        return ProtocolError(str(every[0]), problems=shown)
    lines = [f"The {what} has {count} problems:", *(f"  {problem}" for problem in shown)]
    if count > len(shown):
        lines.append(f"  and {count - len(shown)} more")
    return ProtocolError("\n".join(lines), problems=shown)


def raise_on_errors(
    problems: Sequence[Problem], strict: bool, locate: Callable[[Problem], Problem]
) -> tuple[Problem, ...]:
    """The problems that only warn, each with its place; raises when there is one that refuses."""
    refused = [
        problem for problem in problems if problem.level == "error" or (strict and problem.level == "soft")
    ]
    if not refused:
        return tuple(map(locate, problems[:MAX_PROBLEMS]))
    shown = sorted(map(locate, refused[:MAX_PROBLEMS]), key=lambda problem: (problem.line, problem.column))
    raise protocol_error(shown, total=len(refused))


def shorten(text: str) -> str:
    """At most one line of moderate length, so that no input can flood a message."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: _SHOWN + 1])
    return line if len(text) <= _SHOWN else f"{line[:_SHOWN]}..."


def is_secret(path: Path) -> bool:
    """Whether values at this path must not be shown."""
    return bool(path) and (path[0] == "secrets" or "auth" in path)


def describe_value(value: Any, path: Path = ()) -> str:
    """A value in words; only its kind where it may be secret."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if is_secret(path):
        return "text" if isinstance(value, str) else "a value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{shorten(value)}"'
    if isinstance(value, int):
        return str(value) if abs(value) < 10**_SHOWN else "a number with very many digits"
    return f"the number {value!r}" if isinstance(value, float) else f"a {type(value).__name__}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A suggestion for a misspelt word, or what there is to choose from when there is little."""
    names = sorted(set(islice(choices, _MANY)))
    if not names:
        return ""
    if len(word) <= 4 * _SHOWN:
        from difflib import get_close_matches

        lowered = {name.lower(): name for name in names}
        close = get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
        if not close and len(word) >= 3:
            close = [name for name in lowered if name.startswith(word.lower())][:1]
        if close:
            return f'did you mean "{lowered[close[0]]}"?'
    if len(names) <= 12:
        return "there is " + ", ".join(f'"{shorten(name)}"' for name in names)
    return ""
