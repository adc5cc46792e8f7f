"""Causes of failed jobs and tasks, one line each: for lists, and for the jobs that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from paicluster.store.bulk_insert import chunks
from paicluster.store.compiled_statements import execute
from paicluster.store.rows import AttemptRow
from paiprotocol.jobs.log_end import last_line, plain_line

# A line of a list; a program may write lines of any length.
MAX_CAUSE_CHARS = 300


class _ErrorLogs(msgspec.Struct):
    user: str = ""


class _RuntimeExit(msgspec.Struct, rename="camel"):
    """The fields read of a runtime exit: how a task ended, often the one that decided the attempt."""

    origin_user_exit_code: int | None = None
    caught_exception: str | None = None
    error_logs: _ErrorLogs | None = None


_decode = msgspec.json.Decoder(_RuntimeExit).decode


def cause_of(attempt: AttemptRow | None) -> str:
    """Why a failed attempt failed; empty where nothing is known."""
    return "" if attempt is None else _cause(attempt.diagnostics, attempt.runtime_exit)


class TaskEnd(NamedTuple):
    """How a task ended. ``own_code``: the program's exit code; ``cause``: why it failed, if it did."""

    diagnostics: str | None = None
    own_code: int | None = None
    cause: str = ""


def task_end(exit_info: str | None) -> TaskEnd:
    """What is shown of the runtime exit of a task."""
    if not exit_info:
        return TaskEnd()
    ended = _decode(exit_info)
    return TaskEnd(ended.caught_exception, ended.origin_user_exit_code, _cause_of_end(ended, ""))


def causes_of(conn: Connection, frameworks: Sequence[str]) -> dict[str, str]:
    """Why the last attempt of each of these jobs failed, by full name."""
    causes: dict[str, str] = {}
    for some in chunks(frameworks):
        text = (
            "SELECT jobs.framework, attempts.diagnostics, attempts.runtime_exit FROM jobs"
            " JOIN attempts ON attempts.job_id = jobs.id AND attempts.attempt = jobs.attempt"
            f" WHERE jobs.framework IN ({', '.join('?' * len(some))})"
        )
        rows = execute(conn, text, tuple(some)).fetchall()
        causes.update((framework, _cause(*columns)) for framework, *columns in rows)
    return causes


def _cause(diagnostics: str | None, runtime_exit: str | None) -> str:
    return _cause_of_end(_decode(runtime_exit) if runtime_exit else _RuntimeExit(), diagnostics or "")


def _cause_of_end(ended: _RuntimeExit, diagnostics: str) -> str:
    if ended.caught_exception:
        return _first_line(ended.caught_exception)
    if ended.origin_user_exit_code is not None:
        last = last_line(ended.error_logs.user if ended.error_logs else "")
        return _shortened(f"Exit code {ended.origin_user_exit_code}{f': {last}' if last else ''}")
    return _first_line(diagnostics)


def _first_line(text: str) -> str:
    return _shortened(plain_line(text.strip().partition("\n")[0]))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CAUSE_CHARS else f"{text[: MAX_CAUSE_CHARS - 1]}…"
