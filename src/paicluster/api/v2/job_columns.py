"""Columns of lists of jobs: parameters and metrics of the jobs of a page, and the names that there are."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.jobs.column_cache import ColumnCache, Names
from paicluster.api.routing.route import Query
from paicluster.api.wire.jobs import JobColumns, ListedMetric
from paicluster.store import job_columns
from paicluster.store.job_columns import JobMetrics, JobSize
from paicluster.store.job_list import ListPage, long_page
from paicluster.store.job_query import JobQuery
from paiprotocol.errors import InvalidParameters
from paiprotocol.jobs.array_columns import TASK_INDEX
from paiprotocol.plain_numbers import plain_number

# Bounds of a page with columns.
MAX_JOBS = 200
MAX_COLUMNS = 50
# Tasks whose metrics are read for a page; jobs beyond have none.
MAX_TASKS = 10_000
# Of an array, and of each value.
_MAX_VALUES = 20
_MAX_CHARS = 200
_MAX_NAMES = 1000
# Beyond these are infinities, which JSON has not.
_HIGHEST = sys.float_info.max
_LOWEST = -_HIGHEST
# About what a column takes in the summary of a job.
COLUMN_BYTES = 128

COLUMNS = (
    Query("metric", description="Our addition: with this metric of each job; may be repeated."),
    Query("parameter", description="Our addition: with this parameter of each job; may be repeated."),
)


class _Additions(msgspec.Struct, frozen=True):
    array: dict[str, list[str]] = {}
    arrayRows: dict[str, list[str]] = {}  # noqa: N815 - a key of jobs


class _RunExtras(msgspec.Struct, frozen=True):
    gangAllocation: bool = True  # noqa: N815 - a key of jobs
    openpaisdk: _Additions = _Additions()


class RunConfig(msgspec.Struct, frozen=True):
    """The parts of a job that describe its runs."""

    parameters: dict[str, Any] = {}
    extras: _RunExtras = _RunExtras()

    @property
    def array(self) -> dict[str, list[str]]:
        return self.extras.openpaisdk.array

    @property
    def array_rows(self) -> dict[str, list[str]]:
        return self.extras.openpaisdk.arrayRows

    def is_array(self, total_roles: int) -> bool:
        """Whether the tasks are independent: each is a run."""
        return not self.extras.gangAllocation and total_roles == 1


_decode = msgspec.json.Decoder(RunConfig).decode
_encode = msgspec.json.Encoder().encode
_texts_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Listed(msgspec.Struct, rename="camel"):
    """What is read of a stored summary: it may be of another version of the server."""

    total_task_number: int
    total_task_role_number: int
    completed_time: int | None = None


_listed = msgspec.json.Decoder(list[_Listed]).decode


def run_config(text: str | None) -> RunConfig:
    """The configuration of a job; empty for one of another shape, as old jobs may be."""
    try:
        return _decode(text) if text else RunConfig()
    except msgspec.DecodeError:
        return RunConfig()


class UnreadJobs(NamedTuple):
    """Jobs whose metrics may be in files that are not read to their end: their tasks have ended, or run."""

    missed: Collection[int] = ()
    running: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """Metrics and parameters that a list is asked for."""

    metrics: tuple[str, ...]
    parameters: tuple[str, ...]

    @property
    def names(self) -> Names:
        return self.metrics, self.parameters

    def __len__(self) -> int:
        return len(self.metrics) + len(self.parameters)


def columns_of(request: Request, query: JobQuery) -> Columns:
    """The columns of a request; raises InvalidParameters for more than a page can have."""
    if b"metric=" not in (text := request.scope["query_string"]) and b"parameter=" not in text:
        return Columns((), ())
    metrics, parameters = (
        tuple(dict.fromkeys(filter(None, request.query_params.getlist(name))))
        for name in ("metric", "parameter")
    )
    columns = Columns(metrics, parameters)
    if len(columns) > MAX_COLUMNS:
        raise InvalidParameters(f"A list may have {MAX_COLUMNS} metrics and parameters, not {len(columns)}.")
    if len(columns) and query.limit > MAX_JOBS:
        raise InvalidParameters(
            f"limit must be at most {MAX_JOBS} in a list with metrics or parameters, not {query.limit}."
        )
    return columns


def with_columns(
    conn: Connection, page: ListPage, ids: Sequence[int], columns: Columns, cache: ColumnCache
) -> tuple[ListPage, UnreadJobs]:
    """The page of these jobs with the columns, and the ids of those with metrics to read."""
    texts = [bytes(text) for text in _texts_of(b"[%b]" % page.summaries)]
    fields = [cache.get(text, columns.names) for text in texts]
    new = [at for at, known in enumerate(fields) if known is None]
    unread = UnreadJobs()
    if new:
        read, unread = _read_columns(conn, [texts[at] for at in new], [ids[at] for at in new], columns, cache)
        for at, encoded in zip(new, read, strict=True):
            fields[at] = encoded
    whole = [b"%b,%b" % (text[:-1], (known or b"")[1:]) for text, known in zip(texts, fields, strict=True)]
    return ListPage(b",".join(whole), page.total), unread


def _read_columns(
    conn: Connection, texts: Sequence[bytes], ids: Sequence[int], columns: Columns, cache: ColumnCache
) -> tuple[list[bytes], UnreadJobs]:
    """The fields of each of these summaries, as JSON objects, and the ids of jobs with metrics to read."""
    summaries = _listed(b"[%b]" % b",".join(texts))
    jobs = [
        JobSize(job_id, job.total_task_number, job.total_task_role_number)
        for job_id, job in zip(ids, summaries, strict=True)
    ]
    measured = _within_bound(jobs) if columns.metrics else []
    # Whether a job of one task is an array is nothing to its metrics.
    wanted = jobs if columns.parameters else [job for job in measured if job.total_tasks > 1]
    specs = job_columns.specs_of(conn, [job.id for job in wanted])
    configs = {job.id: run_config(specs.get(job.id)) for job in wanted}
    arrays = _arrays(measured, configs)
    metrics = job_columns.metrics_of(conn, measured, arrays, columns.metrics)
    found: list[bytes] = []
    for text, summary, job in zip(texts, summaries, jobs, strict=True):
        fields: dict[str, Any] = {}
        if columns.metrics:
            fields["metrics"] = _metrics(metrics, job.id, job.id in arrays)
        if columns.parameters:
            fields["parameters"] = parameter_values(configs[job.id], columns.parameters)
        encoded = _encode(fields)
        found.append(encoded)
        is_final = summary.completed_time is not None and job.id not in metrics.unread
        if is_final and fields.get("metrics", {}) is not None:
            cache.put(text, columns.names, encoded)
    return found, UnreadJobs(metrics.missed, metrics.running)


def read_metrics(
    conn: Connection, jobs: Sequence[JobSize], names: Sequence[str]
) -> tuple[JobMetrics, set[int]]:
    """Metrics of jobs, and which of these are arrays."""
    specs = job_columns.specs_of(conn, [job.id for job in jobs if job.total_tasks > 1])
    arrays = _arrays(jobs, {job_id: run_config(text) for job_id, text in specs.items()})
    return job_columns.metrics_of(conn, jobs, arrays, names), arrays


def _arrays(jobs: Sequence[JobSize], configs: Mapping[int, RunConfig]) -> set[int]:
    several = (job for job in jobs if job.total_tasks > 1 and job.id in configs)
    return {job.id for job in several if configs[job.id].is_array(job.total_roles)}


def _metrics(metrics: JobMetrics, job_id: int, is_array: bool) -> dict[str, ListedMetric] | None:
    """None: those of the job are not read."""
    found = metrics.by_job.get(job_id)
    if found is None:
        return None
    # Positions, not names: thousands of these make a page.
    return {name: _listed_metric(row[0], row[1], row[2], is_array) for name, row in found.items()}


def _listed_metric(last: float | None, low: float | None, high: float | None, is_array: bool) -> ListedMetric:
    if last is not None and low is not None and high is not None and low >= _LOWEST and high <= _HIGHEST:
        # Almost all of them: numbers that are numbers in JSON.
        return ListedMetric(None if is_array else last, low, high)
    return ListedMetric(
        None if is_array else plain_number(math.nan if last is None else last), _bound(low), _bound(high)
    )


def _within_bound(jobs: Sequence[JobSize]) -> list[JobSize]:
    """The first jobs that have together as many tasks as are read for a page."""
    tasks, found = 0, []
    for job in jobs:
        if tasks + job.total_tasks <= MAX_TASKS:
            tasks += job.total_tasks
            found.append(job)
    return found


def _bound(value: float | None) -> float | str | None:
    return None if value is None else plain_number(value)


def parameter_values(config: RunConfig, names: Sequence[str]) -> dict[str, list[str]]:
    """The values that the job has of these parameters; of an array all different ones, up to a bound."""
    found: dict[str, list[str]] = {}
    for name in names:
        values: Sequence[Any] = config.array_rows.get(name) or config.array.get(name) or ()
        if not values and name in config.parameters:
            values = (config.parameters[name],)
        if values:
            different = list(dict.fromkeys(map(_text, values)))
            found[name] = different[:_MAX_VALUES]
    return found


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def jobs_of_page(conn: Connection, query: JobQuery) -> list[int]:
    """The ids of the jobs whose names of columns a page has."""
    return list(long_page(conn, replace(query, limit=min(query.limit, MAX_JOBS), with_total=False))[0])


def column_names(conn: Connection, job_ids: Sequence[int]) -> JobColumns:
    """Names in these jobs; of metrics those of the first task of each role."""
    parameters: dict[str, None] = {}
    for text in job_columns.specs_of(conn, job_ids).values():
        config = run_config(text)
        parameters.update(dict.fromkeys((*config.array_rows, *config.array, *config.parameters)))
    parameters.pop(TASK_INDEX, None)
    return JobColumns(sorted(parameters)[:_MAX_NAMES], job_columns.metric_names(conn, job_ids, _MAX_NAMES))
