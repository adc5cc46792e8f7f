"""Problems of a job: message, position in the text, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from paiprotocol.errors import ProtocolError

Path = tuple[str | int, ...]

MAX_PROBLEMS = 100
"""Further problems are not looked for: in a hostile text there may be hundreds of thousands."""
MAX_HINTS = 10
"""Suggestions for misspelt words in one text: each compares a word with every known one."""
_MAX_SHOWN_CHARS = 40
_MAX_CHOICES = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. ``line`` and ``column`` count from 1; 0: the job was not read from text.

    ``level`` is "error"; "soft": OpenPAI accepts it, so a server only warns, while ``pai check-job`` rejects
    it; or "note": a remark, never rejected. ``at_key``: the problem is the key, not its value.
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
        """The path as text: ``taskRoles.worker.commands[0]``."""
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
        """All non-empty fields, for JSON output."""
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
    """One error for all problems; ``total``: their number, if larger than the list."""
    every = tuple(islice(problems, MAX_PROBLEMS + 1))
    shown = every[:MAX_PROBLEMS]
    count = max(total, len(every))
    if count == 1:
        return ProtocolError(str(every[0]), problems=shown)
    head = f"The {what} has {count} problems:"
    if count > MAX_PROBLEMS:
        head = f"The {what} has more than {MAX_PROBLEMS} problems; the first {MAX_PROBLEMS} are:"
    return ProtocolError("\n".join([head, *(f"  {problem}" for problem in shown)]), problems=shown)


def is_full(problems: Sequence[object]) -> bool:
    """Whether there are more problems than are listed, so that no more of them need to be found."""
    return len(problems) > MAX_PROBLEMS


def raise_on_errors(
    problems: Sequence[Problem], strict: bool, locate: Callable[[Problem], Problem]
) -> tuple[Problem, ...]:
    """Return the problems that are only warnings, with their positions; raise if any is an error."""
    errors = [
        problem for problem in problems if problem.level == "error" or (strict and problem.level == "soft")
    ]
    if not errors:
        return tuple(map(locate, problems[:MAX_PROBLEMS]))
    shown = sorted(map(locate, errors[:MAX_PROBLEMS]), key=lambda problem: (problem.line, problem.column))
    raise protocol_error(shown, total=len(errors))


def within(text: str, line: int, column: int) -> tuple[int, int]:
    """A position within a text: one after its last written line becomes the end of that line.

    Parsers report what is missing at the end of a text one line below it.
    """
    written = text.rstrip().splitlines() or [""]
    return (line, column) if line <= len(written) else (len(written), len(written[-1]) + 1)


def shorten(text: str) -> str:
    """At most one short line, so that no input can flood a message."""
    line = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: _MAX_SHOWN_CHARS + 1]
    )
    return line if len(text) <= _MAX_SHOWN_CHARS else f"{line[:_MAX_SHOWN_CHARS]}..."


def is_secret(path: Path) -> bool:
    """Whether values at this path must not be shown."""
    return bool(path) and (path[0] == "secrets" or "auth" in path)


def describe_value(value: Any, path: Path = ()) -> str:
    """Description of a value; only its type if it may be secret."""
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
        return str(value) if abs(value) < 10**_MAX_SHOWN_CHARS else "a number with too many digits"
    return f"the number {value!r}" if isinstance(value, float) else f"a {type(value).__name__}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Suggestion for a misspelt word, or the list of choices if it is short."""
    names = sorted(set(islice(choices, _MAX_CHOICES)))
    if not names:
        return ""
    if len(word) <= 4 * _MAX_SHOWN_CHARS:
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
