"""Check of every row of a database: types, stored JSON, and what must agree between the rows of a job.

SQLite's own checks look at pages, indexes and references; a changed byte inside a value passes them.
"""

from __future__ import annotations

import base64
import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, Table

from paicluster.store import sqlite
from paicluster.store.rows import JobRow, SummaryRenderer
from paicluster.store.tables import metadata
from paiprotocol.errors import PaiError
from paiprotocol.jobs import read_job
from paiprotocol.jobs.states import SubState, debug_id, framework_name, job_state

# JSON texts, by table and column; a nullable one may also be empty.
_JSON = {
    "users": ("extension",),
    "user_groups": ("extension",),
    "jobs": ("summary", "tags"),
    "job_specs": ("resource_request",),
    "job_origins": ("chain",),
    "attempts": ("runtime_exit",),
    "tasks": ("ports", "gpus", "exit_info"),
}
# Tables whose numbers may be infinite: what programs log.
_UNBOUNDED = frozenset(("task_metrics",))
# Times lie between 1970 and 2248: far enough for a wrong clock.
_MAX_TIME_MS = 1 << 43
_STATES = frozenset(SubState)
_EXECUTION_TYPES = frozenset(("START", "STOP"))
_EVENT_TYPES = frozenset(("Normal", "Warning"))
_MAX_REPORTED = 100
_decode = msgspec.json.Decoder().decode
_JOB_FIELDS = tuple(field.name for field in fields(JobRow))

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that cannot be read, or does not agree with others. ``job_id``: of the job it belongs to."""

    table: str
    rowid: int
    reason: str
    job_id: int | None = None
    job: str = ""

    def __str__(self) -> str:
        job = f"job {self.job}: " if self.job else ""
        return f"{job}row {self.rowid} of {self.table}: {self.reason}"


class _NotText:
    """A text that is not UTF-8."""


def row_problems(
    path: Path,
    render_summary: SummaryRenderer | None = None,
    *,
    limit: int = _MAX_REPORTED,
    is_copy: bool = False,
) -> list[RowProblem]:
    """What is wrong with the rows of a database. Reads a snapshot, also while a server writes to it.

    ``is_copy``: no process uses it. StoreError: a page cannot be read.
    """
    uri = sqlite.read_only_uri(path, immutable=is_copy)
    try:
        with closing(sqlite3.connect(uri, uri=True)) as conn:
            conn.execute("BEGIN")
            conn.text_factory = _text
            return list(islice(_Check(conn, render_summary).run(), limit))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the message may contain what is damaged
        raise sqlite.as_store_error(error, path) or sqlite.damaged(path, str(error)) from None


class _Check:
    def __init__(self, conn: sqlite3.Connection, render_summary: SummaryRenderer | None) -> None:
        self._conn = conn
        self._render = render_summary
        # Of each job: its name, its current attempt, and what else has to agree.
        self._jobs: dict[int, Values] = {}
        self._attempts: dict[int, set[int]] = defaultdict(set)

    def run(self) -> Iterator[RowProblem]:
        by_table: dict[str, Callable[[Values], Iterable[str]]] = {
            "jobs": self._job,
            "job_specs": self._spec,
            "job_tags": self._tag,
            "attempts": self._attempt,
            "tasks": self._task,
            "events": self._event,
        }
        # Jobs first: the others are compared with them.
        for name in sorted(metadata.tables, key=lambda name: (name not in by_table, name != "jobs", name)):
            table = metadata.tables[name]
            check = by_table.get(name, _nothing)
            for rowid, values in self._rows(table):
                for reason in _checked(table, values, check):
                    yield self._problem(name, rowid, values, reason)
        yield from self._missing()

    def _rows(self, table: Table) -> Iterator[tuple[int, Values]]:
        names = [column.name for column in table.columns]
        quoted = ", ".join(f'"{name}"' for name in names)
        for rowid, *values in self._conn.execute(f'SELECT rowid, {quoted} FROM "{table.name}"'):
            yield rowid, dict(zip(names, values, strict=True))

    def _problem(self, table: str, rowid: int, values: Values, reason: str) -> RowProblem:
        job_id = values.get("id" if table == "jobs" else "job_id")
        if not isinstance(job_id, int):
            return RowProblem(table, rowid, reason)
        name = values.get("framework") if table == "jobs" else self._jobs.get(job_id, {}).get("framework")
        return RowProblem(table, rowid, reason, job_id, name if isinstance(name, str) else f"number {job_id}")

    # -- what must agree ---------------------------------------------------------------------------

    def _job(self, job: Values) -> Iterator[str]:
        self._jobs[job["id"]] = {
            **{name: job[name] for name in ("framework", "attempt", "submission_ms", "sub_state")},
            "tags": set(_decode(job["tags"])),
            "has_spec": False,
            "tagged": set(),
        }
        if job["framework"] != framework_name(job["username"], job["name"]):
            yield "its full name is not that of its user and its name"
        if job["debug_id"] != debug_id(job["framework"]):
            yield "its debug id is not that of its name"
        yield from _state_problems(job)
        if job["state"] != job_state(job["sub_state"], job["exit_code"]):
            yield f"the state {job['state']} does not follow from {job['sub_state']} and its exit code"
        if job["execution_type"] not in _EXECUTION_TYPES:
            yield "the execution type is unknown"
        if job["generation"] not in ("v1", "v2"):
            yield "the generation is unknown"
        if min(job[name] for name in ("retries", "attempt", "total_tasks", "total_roles", "total_gpus")) < 0:
            yield "a number is negative"
        if self._render is not None:
            rendered = _decode(self._render(JobRow(**{name: job[name] for name in _JOB_FIELDS})))
            stored = _decode(job["summary"])
            # A server of another version may have written it: only what both have is compared.
            if differing := [name for name in rendered if name in stored and rendered[name] != stored[name]]:
                yield f"its entry in lists differs from it ({differing[0]})"

    def _spec(self, spec: Values) -> Iterator[str]:
        if job := self._jobs.get(spec["job_id"]):
            job["has_spec"] = True
        read_job(spec["job"] or spec["config"], stored=True)
        yield from ()

    def _tag(self, row: Values) -> Iterator[str]:
        job = self._jobs.get(row["job_id"])
        if job is not None:
            job["tagged"].add(row["tag"])
            if row["submission_ms"] != job["submission_ms"]:
                yield "its time is not that of its job"

    def _attempt(self, row: Values) -> Iterator[str]:
        self._attempts[row["job_id"]].add(row["attempt"])
        yield from _state_problems(row)
        job = self._jobs.get(row["job_id"])
        if job is not None and not 0 <= row["attempt"] <= job["attempt"]:
            yield f"it is of attempt {row['attempt']}, and the job is at {job['attempt']}"

    def _task(self, row: Values) -> Iterator[str]:
        yield from _state_problems(row)
        job = self._jobs.get(row["job_id"])
        if job is not None and not 0 <= row["attempt"] <= job["attempt"]:
            yield f"it is of attempt {row['attempt']}, and the job is at {job['attempt']}"
        if min(row[name] for name in ("role_order", "task_index", "task_attempt", "memory_mb")) < 0:
            yield "a number is negative"

    def _event(self, row: Values) -> Iterator[str]:
        if row["type"] not in _EVENT_TYPES or row["count"] < 1:
            yield "its type or its count is impossible"

    def _missing(self) -> Iterator[RowProblem]:
        for job_id, job in self._jobs.items():
            if not job["has_spec"]:
                yield RowProblem("jobs", job_id, "its specification is missing", job_id, job["framework"])
            if job["tags"] != job["tagged"]:
                yield RowProblem("jobs", job_id, "its tags differ from job_tags", job_id, job["framework"])


def _checked(table: Table, values: Values, check: Callable[[Values], Iterable[str]]) -> Iterator[str]:
    """What is wrong with a row: first by itself, then with what must agree."""
    wrong = [
        f"{column.name} {reason}"
        for column in table.columns
        if (reason := _wrong(column, values[column.name]))
    ]
    for name in _JSON.get(table.name, ()):
        text = values[name]
        if not wrong and text:
            try:
                _decode(text)
            except (msgspec.DecodeError, RecursionError):
                wrong.append(f"{name} is not JSON")
    if wrong:
        yield from wrong
        return
    try:
        yield from check(values)
    except (PaiError, msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        first, *_ = (str(error) or type(error).__name__).splitlines()
        yield f"it cannot be read ({first[:200]})"


def _wrong(column: Column[Any], value: object) -> str:
    """What is wrong with one value, by the column's type."""
    if value is None:
        return "" if column.nullable else "is missing"
    kind = column.type
    if isinstance(kind, Boolean):
        return "" if value in (0, 1) else "is neither true nor false"
    if isinstance(kind, Float):
        is_unbounded = column.table is not None and column.table.name in _UNBOUNDED
        is_number = isinstance(value, int | float) and (is_unbounded or math.isfinite(value))
        return "" if is_number else "is not a number"
    if isinstance(kind, Integer):  # BigInteger as well
        if not isinstance(value, int):
            return "is not an integer"
        is_time = column.name.endswith("_ms")
        return "is no possible time" if is_time and not 0 <= value < _MAX_TIME_MS else ""
    if isinstance(kind, LargeBinary):
        return "" if isinstance(value, bytes) else "is not binary"
    return _wrong_text(value)


def _wrong_text(value: object) -> str:
    return "" if isinstance(value, str) and "\0" not in value else "is not a text"


def _state_problems(row: Values) -> Iterator[str]:
    if row["sub_state"] not in _STATES:
        yield "its state is unknown"
    elif row["sub_state"] in (SubState.COMPLETED, SubState.ATTEMPT_COMPLETED):
        if row["completed_ms"] is None:
            yield "it has ended, and has no time of its end"
    elif row["completed_ms"] is not None and row["sub_state"] == SubState.RUNNING:
        yield "it runs, and has a time of its end"


def _nothing(values: Values) -> Iterable[str]:
    return ()


def _text(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _NotText()


# -- repair ------------------------------------------------------------------------------------------------


def set_aside(database: Path, job_ids: Iterable[int], target: Path) -> int:
    """Move all rows of these jobs to a file of JSON lines, and rebuild the indexes; the number of rows.

    The caller holds the lock of the home.
    """
    of_job = {"jobs": "id"} | {
        name: "job_id" for name, table in metadata.tables.items() if "job_id" in table.c
    }
    count = 0
    with closing(sqlite3.connect(database, isolation_level=None)) as conn:
        conn.text_factory = bytes
        conn.execute("PRAGMA foreign_keys=OFF")
        conn.execute("BEGIN IMMEDIATE")
        with target.open("x") as file:
            target.chmod(0o600)
            for job_id in job_ids:
                for table, key in of_job.items():
                    cursor = conn.execute(f'SELECT * FROM "{table}" WHERE +"{key}" = ?', (job_id,))
                    names = [entry[0] for entry in cursor.description]
                    for row in cursor.fetchall():
                        values = dict(zip(names, map(_printable, row), strict=True))
                        file.write(json.dumps({"table": table, "row": values}) + "\n")
                        count += 1
                    conn.execute(f'DELETE FROM "{table}" WHERE +"{key}" = ?', (job_id,))
            file.flush()
        sqlite.sync_file(target)
        conn.execute("COMMIT")
        conn.execute("REINDEX")
    return count


def _printable(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
