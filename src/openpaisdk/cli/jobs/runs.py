"""``pai runs``: parameters, metrics and states of the tasks of a sweep, or of many jobs, one line each."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.models import check_states
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.runs import load_runs
from openpaisdk.output import format_duration, palette, print_notice, show, show_csv, table, terminal_columns
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.runs import Run, RunMetric, RunTable

_ALL_USERS = "__all__"
_JOBS = 50
# Columns of metrics in a table; the other formats have all.
_SHOWN_METRICS = 6
_MISSING = "-"
# Of the cause of a failure, before columns of metrics are left out, and after.
_CAUSE_WIDTH = 40
_LEAST_CAUSE_WIDTH = 12


def runs(argv: list[str]) -> int:
    """``pai runs [options] [job ...]``"""
    args = _parser().parse(argv)
    for state in args.state:
        check_states(state)
    _check_jobs_are_named_once(args)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    loaded, has_more = _load(cluster, args)
    chosen = loaded
    for text in args.filter:
        chosen = chosen.filtered(text)
    if args.sort:
        chosen = chosen.sorted(args.sort)
    if args.best:
        chosen = chosen.best(args.best)
    if args.output == "csv":
        # What is missing is empty; numbers are exact.
        show_csv(chosen.records())
    else:
        show([_plain(run) for run in chosen.runs], args.output, lambda: _table(chosen, args.metric))
    _print_notices(args, loaded, chosen, has_more)
    if args.output == "table" and loaded.runs and (missing := _missing_metrics(args, loaded)):
        from openpaisdk.cli.jobs.job_outputs import metrics_hint

        # Only now are the names of all metrics needed.
        known, _ = _load(cluster, args, metrics=())
        print_notice(f"No run has logged {', '.join(missing)}; {metrics_hint(missing, known.metrics)}")
    return 0


def _parser() -> Parser:
    parser = command_parser(
        "runs",
        "pai runs sweep --sort loss\npai runs sweep --filter 'lr<0.01 and state=SUCCEEDED' -o csv\n"
        "pai runs --tag study --best val/acc:max",
        "A line is a task of an array, or a job without one. A metric has its last, lowest and highest\n"
        "value (loss, loss.min, loss.max). Names are those of metrics, of parameters, and job, user,\n"
        "task, index, state, duration (in seconds), exit and cause (why it failed). What a run has not is\n"
        "-, and comes last.",
        more_formats=("csv",),
    )
    add = parser.add_argument
    add("--sort", default="", metavar="NAME", help="sort by a value, ascending; NAME:desc descending")
    add(
        "--best",
        default="",
        metavar="NAME",
        help="only the run with the lowest value of a metric; NAME:max: with the highest",
    )
    add(
        "--filter",
        action="append",
        default=[],
        metavar="FILTER",
        help="only runs that fit, like 'lr<0.01 and not state=FAILED'; operators: < <= > >= = != ~ "
        "(contains); may be repeated",
    )
    add("--metric", action="append", default=[], metavar="NAME", help="only this metric; may be repeated")
    add("--tag", action="append", default=[], metavar="TAG", help="jobs with this tag; may be repeated")
    add("--state", action="append", default=[], metavar="STATE", help="jobs in this state; may be repeated")
    add("--keyword", default="", metavar="TEXT", help="jobs whose name contains this text")
    add(
        "--user",
        default="",
        metavar="USER",
        help=f"the jobs' owner (default: you); {_ALL_USERS} for all users",
    )
    add(
        "--limit",
        type=int_at_least(1),
        metavar="N",
        help=f"the maximum number of jobs (default: {_JOBS}; with --tag all)",
    )
    add("jobs", nargs="*", metavar="job", help="names of jobs (default: your newest ones)")
    return parser


def _check_jobs_are_named_once(args: argparse.Namespace) -> None:
    """Options that select jobs say nothing about named ones."""
    if not args.jobs:
        return
    given = [f"--{name}" for name in ("tag", "state", "keyword", "limit") if getattr(args, name)]
    if given:
        hint = (
            "Runs of these jobs in a state: --filter state=FAILED" if args.state else "Leave one of them out."
        )
        raise UsageError(f"Jobs are selected by {given[0]} or by name, not by both.", hint=hint)


def _missing_metrics(args: argparse.Namespace, loaded: RunTable) -> list[str]:
    """Metrics of ``--metric`` that no run has logged."""
    return [name for name in args.metric if name not in loaded.metrics]


def _load(
    cluster: ClusterClient, args: argparse.Namespace, metrics: Sequence[str] | None = None
) -> tuple[RunTable, bool]:
    metrics = args.metric if metrics is None else metrics
    owner = "" if args.user == _ALL_USERS else args.user or cluster.user
    if args.jobs:
        names = [cluster.whole_name(name, owner) for name in dict.fromkeys(args.jobs)]
        return load_runs(cluster, names, metrics=metrics)
    limit = args.limit or (None if args.tag else _JOBS)
    return load_runs(
        cluster,
        limit=limit,
        metrics=metrics,
        username=owner,
        tagsContain=",".join(args.tag),
        state=",".join(state.upper() for state in args.state),
        keyword=args.keyword,
    )


def _print_notices(args: argparse.Namespace, loaded: RunTable, chosen: RunTable, has_more: bool) -> None:
    for name in loaded.unread:
        print_notice(f"The cluster is still reading the metrics of {name}: ask again in a moment.")
    for name in loaded.cut:
        print_notice(f"{name} has more metrics than are kept for each task: pai job-metrics {name} has all.")
    if args.output != "table":
        return
    if not loaded.runs:
        is_filtered = args.tag or args.state or args.keyword
        text = "No jobs match." if is_filtered else "No jobs. Run one with: pai sub -- echo hello"
        if args.state:
            text += " --state is that of a job; runs in a state, also those of sweeps: --filter state=FAILED"
        print_notice(text)
    elif not chosen.runs:
        print_notice(f"None of {len(loaded.runs)} runs fits.")
    elif not loaded.metrics and not args.metric:
        print_notice(
            "No run has logged metrics: programs do with openpaisdk.runtime.log_metrics(step, loss=0.1)."
        )
    elif len(loaded.metrics) > _SHOWN_METRICS and not args.metric:
        hidden = len(loaded.metrics) - _SHOWN_METRICS
        print_notice(f"{hidden} more metrics: --metric NAME shows one, -o csv and -o json have all.")
    if has_more:
        print_notice("There are more jobs: --limit N shows more.")


def _table(chosen: RunTable, named: list[str]) -> str:
    """The runs as a table; columns that are the same for all jobs of one user are left out."""
    runs = chosen.runs
    if not runs:
        return ""
    metrics = chosen.metrics if named else chosen.metrics[:_SHOWN_METRICS]
    headers = ["JOB", "USER", "TASK", *chosen.parameters, "STATE", "DURATION"]
    headers += [column for name in metrics for column in (name, f"{name}.min", f"{name}.max")]
    headers.append("CAUSE")
    rows = [
        [
            run.job,
            run.user,
            run.task or _MISSING,
            *(_text(run.parameters.get(name)) for name in chosen.parameters),
            run.state,
            format_duration(run.launched_ms, run.completed_ms),
            *(_number(value) for name in metrics for value in _values(run.metrics.get(name))),
            run.cause or _MISSING,
        ]
        for run in runs
    ]
    hidden = {1} if len({run.user for run in runs}) == 1 else set()
    if not any(run.task for run in runs):
        hidden.add(2)
    state, cause = 3 + len(chosen.parameters), len(headers) - 1
    if not any(run.cause for run in runs):
        hidden.add(cause)
    colours = palette(sys.stdout)
    return table(
        headers,
        rows,
        right=frozenset(range(state + 1, cause)),
        paint=lambda i, cell: colours.state(cell) if i == state else cell,
        hide=hidden,
        columns=terminal_columns(sys.stdout),
        # Highest and lowest values are left out first, from the right.
        fit=[
            (cause, _CAUSE_WIDTH),
            *((i, 0) for i in range(cause - 1, state + 1, -1) if (i - state - 2) % 3),
            (cause, _LEAST_CAUSE_WIDTH),
        ],
        keep_ends=frozenset((0,)),
    )


def _values(metric: RunMetric | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if metric is None else (metric.last, metric.min, metric.max)


def _number(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.6g}"


def _text(value: object) -> str:
    if value is None or value == "":
        return _MISSING
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value)


def _plain(run: Run) -> dict[str, object]:
    from paiprotocol.plain_numbers import plain_number

    def number(value: float | None) -> float | str | None:
        return None if value is None else plain_number(value)

    return {
        "job": run.job,
        "user": run.user,
        "task": run.task or None,
        "role": run.role,
        "index": run.index,
        "state": run.state,
        "exitCode": run.exit_code,
        "cause": run.cause or None,
        "submittedTime": run.submitted_ms,
        "launchedTime": run.launched_ms,
        "completedTime": run.completed_ms,
        "duration": run.duration,
        "tags": run.tags,
        "parameters": run.parameters,
        "metrics": {
            name: {
                "count": metric.count,
                "last": number(metric.last),
                "lastStep": metric.last_step,
                "min": number(metric.min),
                "minStep": metric.min_step,
                "max": number(metric.max),
                "maxStep": metric.max_step,
            }
            for name, metric in run.metrics.items()
        },
    }
