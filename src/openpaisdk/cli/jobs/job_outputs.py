"""``pai job-outputs`` and ``pai job-metrics``: output files and metrics of a job."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import add_task_options, command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.outputs import JobOutputs, MetricSeries, metrics
from openpaisdk.output import print_notice, show, table
from openpaisdk.output.untrusted_text import log_output
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.client import ClusterClient

_PEEK_BYTES = 4096
# Metrics in the message about one that there is not.
_NAMED_METRICS = 20


def job_outputs(argv: list[str]) -> int:
    """``pai job-outputs [options] job [list|get|peek] [file ...]``"""
    parser = command_parser(
        "job-outputs",
        "pai job-outputs train_k3v9xq\npai job-outputs train_k3v9xq get --to results\n"
        "pai job-outputs train_k3v9xq peek scores.txt",
        "Output files are those in $PAI_OUTPUT_DIR when the job ends, and the paths given by --outputs.\n"
        "Where $PAI_OUTPUT_DIR is a folder of the storage (outputDir of version 1), they are what is in it.",
    )
    parser.add_argument(
        "--to", default="", metavar="FOLDER", help="target folder of get (default: JOB_output)"
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "what",
        nargs="?",
        choices=("list", "get", "peek"),
        default="list",
        help="list, download or print the files (default: list)",
    )
    parser.add_argument("files", nargs="*", metavar="file", help="only these files (default: all)")
    args = parser.parse(argv)
    if args.what == "peek" and not args.files:
        alias = f"-a {args.cluster_alias} " if args.cluster_alias else ""
        raise UsageError(
            "peek needs the name of a file.", hint=f"pai job-outputs {alias}{args.job} lists the files."
        )
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    outputs = JobOutputs(cluster, args.job, args.user)
    if args.what == "peek":
        return _peek(outputs, args.files)
    if args.what == "get":
        return _get(outputs, args.files, args.to or f"{args.job}_output", args.output)
    sizes = outputs.files()
    rows = [[name, str(size)] for name, size in sizes.items()]
    listed = [{"name": name, "size": size} for name, size in sizes.items()]
    show(listed, args.output, lambda: table(("FILE", "BYTES"), rows, right=frozenset({1})) if rows else "")
    if not sizes and args.output == "table":
        what = "" if outputs.elsewhere else " A job's outputs are the files it writes to $PAI_OUTPUT_DIR."
        print_notice(outputs.no_files() + what)
    return 0


def _get(outputs: JobOutputs, names: list[str], target: str, output_format: str) -> int:
    fetched, differing = fetch_outputs(outputs, target, names)
    show(
        {"folder": target, "files": fetched},
        output_format,
        lambda: "\n".join(f"{target}/{name}" for name in fetched),
    )
    if differing:
        raise outputs.conflict_error(target, differing)
    if not fetched and output_format == "table":
        print_notice(outputs.no_files())
    return 0


def fetch_outputs(
    outputs: JobOutputs, target: str, names: list[str] | None = None
) -> tuple[list[str], list[str]]:
    """Download output files, with a progress bar on a terminal; returns fetched and differing names."""
    if not sys.stderr.isatty():
        return outputs.fetch(target, names)
    from openpaisdk.output.progress import Progress

    with Progress(delay_s=0.0) as bar:
        return outputs.fetch(target, names, bar.update)


def _peek(outputs: JobOutputs, names: list[str]) -> int:
    sys.stdout.flush()
    out = log_output(sys.stdout)
    for name in names:
        file = outputs.storage.backend.open(outputs.path(name))
        try:
            data = b"".join(bytes(chunk) for chunk in file.chunks(0, min(_PEEK_BYTES, file.size)))
        finally:
            file.close()
        out.write(data)
        if data[-1:] not in (b"", b"\n"):
            out.write(b"\n")
    out.flush()
    return 0


def job_metrics(argv: list[str]) -> int:
    """``pai job-metrics [options] job [name ...]``"""
    parser = command_parser(
        "job-metrics",
        "pai job-metrics train_k3v9xq loss",
        "Programs log metrics with openpaisdk.runtime.log_metrics(step, loss=0.1).",
    )
    add_task_options(parser)
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument("names", nargs="*", metavar="name", help="only these metrics (default: all)")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    by_name = metrics(cluster, args.job, args.user, args.role, args.index)
    missing = [name for name in args.names if name not in by_name]
    if missing:
        raise UsageError(
            f"{args.job} has no metric {', '.join(missing)}; {metrics_hint(missing, list(by_name))}"
        )
    selected = {name: series for name, series in by_name.items() if not args.names or name in args.names}
    if args.output == "table" and by_name:
        _print_values(cluster, args.job, args.user, args.index)
    plain = {name: _plain(series) for name, series in selected.items()}
    show(plain, args.output, lambda: "\n\n".join(map(_plot_metric, selected.values())))
    if not by_name and args.output == "table":
        print_notice(f"{args.job} has logged no metrics yet.")
    return 0


def metrics_hint(missing: Sequence[str], available: Sequence[str]) -> str:
    """The end of a sentence about metrics that there are not: which there are, and what was meant."""
    from difflib import get_close_matches

    if not available:
        return "there are none."
    near = dict.fromkeys(close for name in missing for close in get_close_matches(name, available, 1))
    more = len(available) - _NAMED_METRICS
    rest = f" and {more} more" if more > 0 else ""
    meant = f" Did you mean {', '.join(near)}?" if near else ""
    return f"metrics are {', '.join(available[:_NAMED_METRICS])}{rest}.{meant}"


def _print_values(cluster: ClusterClient, job: str, user: str, index: int) -> None:
    """Print which values the task has in an array."""
    from openpaisdk.cli.jobs.follow_output import task_array

    if array := task_array(cluster, job, user):
        print_notice(f"Task {index}: {array.label(index)}")


def _plain(series: MetricSeries) -> dict[str, object]:
    from paiprotocol.plain_numbers import plain_number

    values = [plain_number(value) for value in series.values]
    # Only where there was one: most programs are not started again.
    restarts = {"restarts": series.restarts} if series.restarts else {}
    return {"steps": series.steps, "values": values, **restarts}


def _plot_metric(series: MetricSeries) -> str:
    import shutil

    from openpaisdk.output.plot import plot

    width = max(20, min(100, shutil.get_terminal_size().columns - 14))
    last = f"{series.name}: {series.values[-1]:.6g} at step {series.steps[-1]}"
    if series.restarts:
        steps = ", ".join(str(series.steps[at]) for at in series.restarts)
        last += f" (started again at step {steps})"
    return f"{last}\n{plot(series.steps, series.values, width)}"
