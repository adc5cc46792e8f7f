"""Runs: what tasks and jobs were started with, and the metrics that they logged.

A run is a task of an array, or else a whole job. Clusters keep summaries of metrics, so that thousands of
runs are read in one request; the series of one are read with `openpaisdk.jobs.outputs.metrics`.
"""

from __future__ import annotations

import time

from openpaisdk.jobs.run_filter import RunFilter, number_of
from paiprotocol.errors import NO_JOB, NotFound, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.run_filter import Value
    from openpaisdk.jobs.task_array import TaskArray

FIELDS = ("job", "user", "task", "index", "state", "duration", "exit", "cause")
"""What every run has, beside parameters and metrics."""
_PARTS = ("last", "min", "max")
_NAMES_PER_REQUEST = 50
_JOBS_PER_REQUEST = 100


class RunMetric:
    """Summary of a metric: last, lowest and highest value, and the steps of these.

    The last value may be NaN; the others are None if all values are NaN.
    """

    __slots__ = ("count", "last", "last_step", "max", "max_step", "min", "min_step")

    def __init__(self, raw: Mapping[str, object]):
        self.count = _whole(raw.get("count")) or 0
        self.last = _number(raw.get("last"))
        self.last_step = _whole(raw.get("lastStep"))
        self.min = _number(raw.get("min"))
        self.min_step = _whole(raw.get("minStep"))
        self.max = _number(raw.get("max"))
        self.max_step = _whole(raw.get("maxStep"))

    def __repr__(self) -> str:
        return f"RunMetric(last={self.last}, min={self.min}, max={self.max}, count={self.count})"


class Run:
    """A task of an array, or a job. ``task`` is empty for a job, ``index`` is None.

    ``parameters`` are the values that the task has in its array, as texts, and the job's own parameters.
    ``run["loss"]`` is the last value of a metric, a parameter, or a field; ``run["loss.min"]`` the lowest.
    """

    __slots__ = (
        "cause", "completed_ms", "exit_code", "index", "job", "launched_ms", "metrics", "parameters", "role",
        "state", "submitted_ms", "tags", "task", "user",
    )  # fmt: skip

    def __init__(self, job: Mapping[str, object], task: Mapping[str, object], is_task: bool):
        self.job = str(job.get("name"))
        self.user = str(job.get("username"))
        tags = job.get("tags")
        self.tags = [str(tag) for tag in tags] if isinstance(tags, list) else []
        self.role = str(task.get("role") or "")
        self.index = _whole(task.get("index")) if is_task else None
        self.task = f"{self.role}[{self.index}]" if is_task else ""
        source = task if is_task else job
        self.state = str(source.get("state"))
        self.submitted_ms = _whole(job.get("submissionTime"))
        self.launched_ms = _whole(source.get("launchedTime"))
        self.completed_ms = _whole(source.get("completedTime"))
        self.exit_code = _whole(task.get("exitCode"))
        self.cause = str(task.get("cause") or "")
        self.parameters: dict[str, object] = {}
        self.metrics: dict[str, RunMetric] = {}

    @property
    def duration(self) -> float | None:
        """Seconds since the start, to the end or to now; None if it has not started."""
        if self.launched_ms is None:
            return None
        end = int(time.time() * 1000) if self.completed_ms is None else self.completed_ms
        return max(0, end - self.launched_ms) / 1000

    def value(self, name: str) -> Value:
        """A metric, a parameter or a field, in this order; numbers as numbers. None: the run has none."""
        metric, _, part = name.rpartition(".")
        if name in self.metrics:
            return self.metrics[name].last
        if part in _PARTS and metric in self.metrics:
            value: float | None = getattr(self.metrics[metric], part)
            return value
        if name in self.parameters:
            return _plain(self.parameters[name])
        if name == "cause":
            return self.cause or None
        if name in FIELDS:
            return _plain(self.exit_code if name == "exit" else getattr(self, name))
        return None

    def __getitem__(self, name: str) -> Value:
        return self.value(name)

    def __repr__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"<run {self.job}{self.task and ' '}{self.task}: {self.state}{values and ' '}{values}>"


class RunTable:
    """Runs with the names of their parameters and metrics, in the order in which they appear.

    ``unread``: jobs whose metrics the cluster is still reading. ``cut``: jobs with more metrics.
    """

    def __init__(self, runs: Iterable[Run], unread: Sequence[str] = (), cut: Sequence[str] = ()):
        self.runs = list(runs)
        self.unread = list(unread)
        self.cut = list(cut)
        self.parameters = list(dict.fromkeys(name for run in self.runs for name in run.parameters))
        self.metrics = list(dict.fromkeys(name for run in self.runs for name in run.metrics))

    def with_runs(self, runs: Iterable[Run]) -> RunTable:
        """The same names, for a part of the runs or another order."""
        other = RunTable((), self.unread, self.cut)
        other.runs, other.parameters, other.metrics = list(runs), self.parameters, self.metrics
        return other

    def filtered(self, text: str) -> RunTable:
        """The runs that fit a filter like ``lr<0.01 and state=SUCCEEDED``."""
        chosen = RunFilter(text)
        for name in chosen.names:
            self._check(name, "filter")
        return self.with_runs(run for run in self.runs if chosen.matches(run.value))

    def sorted(self, order: str) -> RunTable:
        """Ascending by a name, or descending by ``NAME:desc``. Numbers come before texts; what is missing is
        last in both."""
        name, direction = self._split(order, ("asc", "desc"))
        self._check(name, "sort")
        return self.with_runs(_ordered(self.runs, lambda run: run.value(name), direction == "desc"))

    def best(self, order: str) -> RunTable:
        """The run with the lowest value of a metric, or by ``NAME:max`` with the highest."""
        name, direction = self._split(order, ("min", "max"))
        self._check(name, "best")
        part = direction or "min"

        def value(run: Run) -> Value:
            return getattr(run.metrics[name], part) if name in run.metrics else run.value(name)

        ranked = _ordered(self.runs, value, part == "max")[:1]
        return self.with_runs(run for run in ranked if not _is_missing(value(run)))

    def _split(self, order: str, directions: Sequence[str]) -> tuple[str, str]:
        """Name and direction; the whole text, if there is such a name."""
        name, _, direction = order.rpartition(":")
        if name and direction in directions and not self._has(order):
            return name, direction
        return order, ""

    def _has(self, name: str) -> bool:
        metric, _, part = name.rpartition(".")
        is_part = part in _PARTS and metric in self.metrics
        return name in self.metrics or is_part or name in self.parameters or name in FIELDS

    def _check(self, name: str, option: str) -> None:
        if not self.runs or self._has(name):
            return
        from difflib import get_close_matches

        known = [*self.metrics, *self.parameters, *FIELDS]
        near = get_close_matches(name, known, 1)
        raise UsageError(
            f"{option}: there is no {name!r}." + (f" Did you mean {near[0]}?" if near else ""),
            hint=f"Metrics: {_listed(self.metrics)}. Parameters: {_listed(self.parameters)}."
            f" Fields: {', '.join(FIELDS)}.",
        )

    def records(self) -> list[dict[str, object]]:
        """The runs as flat mappings with the same keys. None: what is missing; texts that are numbers are
        numbers."""
        return [self._record(run) for run in self.runs]

    def _record(self, run: Run) -> dict[str, object]:
        record: dict[str, object] = {
            "job": run.job,
            "user": run.user,
            "task": run.task or None,
            "index": run.index,
        }
        for name in self.parameters:
            record[self._column(name)] = _plain(run.parameters.get(name))
        record.update(state=run.state, duration=run.duration, exit=run.exit_code, cause=run.cause or None)
        for name in self.metrics:
            metric = run.metrics.get(name)
            record[self._metric_column(name)] = metric and metric.last
            for part in ("min", "max"):
                record[f"{name}.{part}"] = metric and getattr(metric, part)
        return record

    def _column(self, name: str) -> str:
        """The key of a parameter; another one, where a metric or a field has it."""
        return f"parameters.{name}" if name in FIELDS or name in self.metrics else name

    def _metric_column(self, name: str) -> str:
        return f"{name}.last" if name in FIELDS else name


def load_runs(
    cluster: ClusterClient,
    names: Sequence[str] = (),
    *,
    limit: int | None = None,
    metrics: Sequence[str] = (),
    **filters: object,
) -> tuple[RunTable, bool]:
    """Runs of the jobs with these names, or of those that the filters select; and whether there are more."""
    runs: list[Run] = []
    unread: list[str] = []
    cut: list[str] = []
    has_more = False
    for number, job in enumerate(_jobs(cluster, names, limit, metrics, filters)):
        if number == limit and not names:
            has_more = True
            break
        runs += _runs_of(job)
        for key, listed in (("hasUnreadMetrics", unread), ("hasOmittedMetrics", cut)):
            if job.get(key) is True:
                listed.append(str(job.get("name")))
    return RunTable(runs, unread, cut), has_more


def _jobs(
    cluster: ClusterClient,
    names: Sequence[str],
    limit: int | None,
    metrics: Sequence[str],
    filters: Mapping[str, object],
) -> Iterator[Mapping[str, object]]:
    # One more than asked for tells whether there are more.
    size = _JOBS_PER_REQUEST if limit is None else min(limit + 1, _JOBS_PER_REQUEST)
    shared: list[tuple[str, object]] = [("metric", name) for name in metrics]
    if names:
        for at in range(0, len(names), _NAMES_PER_REQUEST):
            part = names[at : at + _NAMES_PER_REQUEST]
            yield from _pages(cluster, [*shared, ("jobs", ",".join(part)), ("limit", len(part))], part)
        return
    chosen = [(key, value) for key, value in filters.items() if value]
    yield from _pages(cluster, [*shared, *chosen, ("limit", size)], ())


def _pages(
    cluster: ClusterClient, query: list[tuple[str, object]], names: Sequence[str]
) -> Iterator[Mapping[str, object]]:
    from openpaisdk.client.cluster_client import mapping_of, parse_json, unexpected_response
    from pairuntime.transport.http1 import quote

    offset = 0
    while True:
        fields = (f"{key}={quote(str(value))}" for key, value in (*query, ("offset", offset)))
        path = f"/api/v2/runs?{'&'.join(fields)}"
        try:
            response = cluster.transport.request("GET", path, whole=True)
        except NotFound as error:
            raise _not_found(cluster, error, names) from None
        page = mapping_of(parse_json(response.read(), cluster), cluster)
        jobs = page.get("jobs")
        if not isinstance(jobs, list):
            raise unexpected_response(cluster)
        yield from (mapping_of(job, cluster) for job in jobs)
        following = _whole(page.get("next"))
        if following is None or following <= offset or (names and following >= len(names)):
            return
        offset = following


def _not_found(cluster: ClusterClient, error: NotFound, names: Sequence[str]) -> PaiError:
    if error.code != NO_JOB:
        return PaiError(
            f"The cluster {cluster.alias} keeps no summaries of metrics.",
            hint="pai job-metrics JOB plots those of one task.",
        )
    # The message has the full name.
    missing = next((name for name in names if f" {name} " in f" {error.message} "), names[0] if names else "")
    return cluster.no_job(missing.removeprefix(f"{cluster.user}~"))


def _runs_of(job: Mapping[str, object]) -> list[Run]:
    listed = job.get("tasks")
    tasks = [task for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []
    array = _array_of(job)
    parameters = job.get("parameters")
    own: dict[str, object] = dict(parameters) if isinstance(parameters, dict) else {}
    if not tasks or not (array or (job.get("isArray") is True and len(tasks) > 1)):
        run = Run(job, tasks[0] if tasks else {}, False)
        run.parameters = own
        run.cause = next((str(task["cause"]) for task in tasks if task.get("cause")), "")
        # A metric is that of the first task which logged it.
        for task in reversed(tasks):
            run.metrics.update(_metrics_of(task))
        return [run]
    runs = []
    from paiprotocol.jobs.array_columns import TASK_INDEX

    for task in tasks:
        run = Run(job, task, True)
        run.parameters = {**own, **(array.values_of(run.index or 0) if array else {})}
        # Of tasks that run again: which they were, not what they were started with.
        run.parameters.pop(TASK_INDEX, None)
        run.metrics = _metrics_of(task)
        runs.append(run)
    return runs


def _array_of(job: Mapping[str, object]) -> TaskArray | None:
    additions = {key: job[key] for key in ("array", "arrayRows") if job.get(key)}
    if not additions:
        return None
    from openpaisdk.jobs.task_array import array_of_job

    return array_of_job({"extras": {"openpaisdk": additions}})


def _metrics_of(task: Mapping[str, object]) -> dict[str, RunMetric]:
    metrics = task.get("metrics")
    if not isinstance(metrics, dict):
        return {}
    return {str(name): RunMetric(raw) for name, raw in metrics.items() if isinstance(raw, dict)}


def _ordered(runs: Sequence[Run], value_of: Callable[[Run], Value], descending: bool) -> list[Run]:
    numbers: list[tuple[float, Run]] = []
    texts: list[tuple[str, Run]] = []
    missing: list[Run] = []
    for run in runs:
        value = value_of(run)
        if _is_missing(value):
            missing.append(run)
        elif isinstance(value, str):
            texts.append((value, run))
        else:
            numbers.append((float(value or 0), run))
    # Of equal ones the order stays.
    numbers.sort(key=lambda pair: -pair[0] if descending else pair[0])
    texts.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(run for _, run in numbers), *(run for _, run in texts), *missing]


def _is_missing(value: Value) -> bool:
    return value is None or value == "" or value != value


def _plain(value: object) -> Value:
    """A number for a text that is one."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        import json

        return json.dumps(value)
    number = number_of(value)
    if number is None:
        return value
    return int(number) if value.lstrip("+-").isdigit() and abs(number) < 2**53 else number


def _number(value: object) -> float | None:
    """A number as clusters send it; float() also reads what is sent for NaN and infinity."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none"
