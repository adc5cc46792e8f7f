"""Exit codes: their specification, and classification of a failed task by its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from paiprotocol.jobs.exit_table import TABLE
from paiprotocol.jobs.failure_causes import Cause, final_exception, find_cause
from paiprotocol.jobs.log_end import SEARCHED_BYTES, LogEnd

UNKNOWN_FAILURE = 255
"""Exit code of a user failure whose log matches no pattern."""
_UNKNOWN_POSITIVE = 256
_UNKNOWN_NEGATIVE = -8000
MAX_MATCH_CHARS = 2048
_MAX_REASON_CHARS = 300
_MAX_LINE = 8192


@dataclass(frozen=True, slots=True)
class ExitSpec:
    """One entry of the exit code table."""

    code: int
    phrase: str
    issuer: str
    causer: str
    type: str
    stage: str
    behavior: str
    reaction: str
    reason: str | None
    repro: tuple[str, ...]
    solution: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExitMatch:
    """The exit code to report for a task. ``matched`` is the part of the log that matched.

    ``reason`` and ``solution`` say what happened in this task and what to do; empty: the table's apply.
    """

    code: int
    matched: str | None = None
    from_runtime_log: bool = False
    reason: str = ""
    solution: str = ""


def exit_specs() -> tuple[ExitSpec, ...]:
    """The whole table, in the order in which logs are matched."""
    return tuple(ExitSpec(*row[:11]) for row in TABLE)


@cache
def exit_spec(code: int) -> ExitSpec:
    """The entry for ``code``; for an unknown code the generic entry, with ``code`` filled in."""
    rows = _rows()
    row = rows.get(code) or rows[_UNKNOWN_POSITIVE if code > 0 else _UNKNOWN_NEGATIVE]
    return ExitSpec(code, *row[1:11])


def match_exit(
    exit_code: int, log_tail: str | bytes, runtime_log: str | bytes = b"", *, gpu_memory_errors: bool = False
) -> ExitMatch:
    """Classify a task's exit by a known cause, by the first entry of the table that matches, else as 255.

    0 stays 0. Only the end of the log is searched.
    """
    if exit_code == 0:
        return ExitMatch(0)
    log = LogEnd(log_tail)
    cause = find_cause(exit_code, log)
    if cause is not None and cause.code is not None:
        return _explained(cause.code, cause)
    raised = final_exception(exit_code, log) if cause is None else None
    # A program that ended with an exception is not explained by what it printed before.
    searched = _Log(log.text(log.final_from if raised is None else raised.at))
    entry = _match_table(exit_code, _NO_LOG if cause else searched, _Log(runtime_log), gpu=gpu_memory_errors)
    if cause is not None:
        return _explained(entry.code, cause)
    if entry.code == UNKNOWN_FAILURE and raised is not None:
        return replace(entry, reason=f"The program raised {raised.text[:_MAX_REASON_CHARS]}")
    return entry


def _explained(code: int, cause: Cause) -> ExitMatch:
    return ExitMatch(code, cause.matched[:MAX_MATCH_CHARS], reason=cause.reason, solution=cause.solution)


def _match_table(exit_code: int, user: _Log, runtime: _Log, *, gpu: bool) -> ExitMatch:
    """An entry matches if any of its patterns does; a pattern matches if all its conditions do."""
    for code, patterns in _patterns():
        for pattern_code, user_regex, runtime_regex, is_gpu_error in patterns:
            if (pattern_code is not None and pattern_code != exit_code) or (is_gpu_error and not gpu):
                continue
            by_user = user.find(user_regex) if user_regex else None
            if user_regex and by_user is None:
                continue
            by_runtime = runtime.find(runtime_regex) if runtime_regex else None
            if runtime_regex and by_runtime is None:
                continue
            return ExitMatch(code, by_user or by_runtime, by_user is None and by_runtime is not None)
    return ExitMatch(UNKNOWN_FAILURE)


@dataclass(frozen=True, slots=True)
class _Regex:
    """A pattern and a literal that every match contains; searching for the literal first is much faster."""

    pattern: re.Pattern[str]
    needle: bytes


class _Log:
    """The end of a log. Lowered once as bytes, which keeps all offsets (lowering text does not)."""

    __slots__ = ("lowered", "raw")

    def __init__(self, text: str | bytes):
        raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
        self.raw = raw[-SEARCHED_BYTES:]
        self.lowered: bytes | None = None

    def find(self, regex: _Regex) -> str | None:
        for line in self._lines_with(regex.needle):
            if match := regex.pattern.match(line):
                return match.group(1)[:MAX_MATCH_CHARS]
        return None

    def _lines_with(self, needle: bytes) -> Iterator[str]:
        """Lines that contain ``needle``; of a very long line the part around it."""
        if self.lowered is None:
            self.lowered = self.raw.lower()
        at = self.lowered.find(needle)
        while at >= 0:
            before, after = max(0, at - _MAX_LINE), min(len(self.raw), at + _MAX_LINE)
            start = self.raw.rfind(b"\n", before, at) + 1 or before
            end = self.raw.find(b"\n", at, after)
            end = after if end < 0 else end
            yield self.raw[start:end].decode("utf-8", "replace")
            at = self.lowered.find(needle, end)


_NO_LOG = _Log(b"")


@cache
def _rows() -> dict[int, Any]:
    return {row[0]: row for row in TABLE}


@cache
def _patterns() -> tuple[tuple[int, tuple[tuple[int | None, _Regex | None, _Regex | None, bool], ...]], ...]:
    return tuple(
        (row[0], tuple((code, _regex(user), _regex(runtime), gpu) for code, user, runtime, gpu in row[11]))
        for row in TABLE
        if row[11]
    )


def _regex(source: str | None) -> _Regex | None:
    if source is None:
        return None
    flags, bare = re.match(r"(\(\?\w+\))?(.*)", source).groups("")  # type: ignore[union-attr]
    # The patterns are pieces joined by ".*". Matching the first occurrence of each piece without backtracking
    # finds a match if there is one, in time linear in the line, whatever a program writes to its log.
    first, *rest = bare.split(".*")
    linear = (
        f"(?>.*?(?={first}))({first}" + "".join(f"(?>.*?{piece})" if piece else ".*" for piece in rest) + ")"
    )
    literals = re.split(r"\[.*?\]|[.*+?()|\\^$]", bare)
    return _Regex(
        re.compile(("(?i)" if "i" in flags else "") + linear), max(literals, key=len).lower().encode()
    )
