"""``pai job-outputs`` and ``pai job-metrics``: what a job left."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import command_parser, whole_number
from openpaisdk.connect import open_cluster
from openpaisdk.errors import UsageError
from openpaisdk.jobs.outputs import JobOutputs, MetricSeries, metrics
from openpaisdk.output import print_notice, show, table

_PEEK = 4096


def job_outputs(argv: list[str]) -> int:
    """``pai job-outputs [options] job [list|get|peek] [file ...]``"""
    parser = command_parser(
        "job-outputs",
        "pai job-outputs train_k3v9xq\npai job-outputs train_k3v9xq get --to results\n"
        "pai job-outputs train_k3v9xq peek scores.txt",
        "A job keeps what lies in $PAI_OUTPUT_DIR when it ends, and what --outputs names.",
    )
    parser.add_argument("--to", default="", metavar="FOLDER", help="where get puts them (JOB_output)")
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "what", nargs="?", choices=("list", "get", "peek"), default="list", help="what to do (list)"
    )
    parser.add_argument("files", nargs="*", metavar="file", help="only these")
    args = parser.parse(argv)
    if args.what == "peek" and not args.files:
        where = f"-a {args.cluster_alias} " if args.cluster_alias else ""
        raise UsageError(
            "Say which file to look into.", hint=f"pai job-outputs {where}{args.job} lists them."
        )
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    results = JobOutputs(cluster, args.job, args.user)
    if args.what == "peek":
        return _peek(results, args.files)
    if args.what == "get":
        return _get(results, args.files, args.to or f"{args.job}_output", args.output)
    found = results.files()
    rows = [[name, str(size)] for name, size in found.items()]
    listed = [{"name": name, "size": size} for name, size in found.items()]
    show(listed, args.output, lambda: table(("FILE", "BYTES"), rows, right=frozenset({1})) if rows else "")
    if not found and args.output == "table":
        print_notice(f"{args.job} has kept no files. A job keeps what it writes to $PAI_OUTPUT_DIR.")
    return 0


def _get(results: JobOutputs, names: list[str], target: str, form: str) -> int:
    brought, differing = fetch_outputs(results, target, names)
    show({"folder": target, "files": brought}, form, lambda: "\n".join(f"{target}/{n}" for n in brought))
    if differing:
        raise results.conflict_error(target, differing)
    if not brought and form == "table":
        print_notice(f"{results.job_name} has kept no files.")
    return 0


def fetch_outputs(
    results: JobOutputs, target: str, names: list[str] | None = None
) -> tuple[list[str], list[str]]:
    """Bring files, and say how far that is where a person looks."""
    if not sys.stderr.isatty():
        return results.fetch(target, names)
    from openpaisdk.cli.storage_copy import Bar

    bar = Bar()
    try:
        return results.fetch(target, names, bar.draw)
    finally:
        bar.end()


def _peek(results: JobOutputs, names: list[str]) -> int:
    for name in names:
        file = results.storage.backend.open(results.path(name))
        try:
            data = b"".join(bytes(chunk) for chunk in file.chunks(0, min(_PEEK, file.size)))
        finally:
            file.close()
        sys.stdout.buffer.write(data)
        if data[-1:] not in (b"", b"\n"):
            sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return 0


def job_metrics(argv: list[str]) -> int:
    """``pai job-metrics [options] job [name ...]``"""
    parser = command_parser(
        "job-metrics",
        "pai job-metrics train_k3v9xq loss",
        "Programs keep them with openpaisdk.runtime.log_metrics(step, loss=0.1).",
    )
    parser.add_argument("--role", default="", metavar="R", help="the task role (the first one)")
    parser.add_argument("--index", type=whole_number(0), default=0, metavar="I", help="which task (0)")
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    parser.add_argument("names", nargs="*", metavar="name", help="only these figures")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    found = metrics(cluster, args.job, args.user, args.role, args.index)
    missing = [name for name in args.names if name not in found]
    if missing:
        there = ", ".join(found) or "none"
        raise UsageError(f"{args.job} has no figure called {', '.join(missing)}; it has {there}.")
    chosen = {name: figure for name, figure in found.items() if not args.names or name in args.names}
    plain = {name: {"steps": f.steps, "values": f.values} for name, f in chosen.items()}
    show(plain, args.output, lambda: "\n\n".join(map(_plot_metric, chosen.values())))
    if not found and args.output == "table":
        print_notice(f"{args.job} has kept no figures yet.")
    return 0


def _plot_metric(figure: MetricSeries) -> str:
    import shutil

    from openpaisdk.output.plot import plot

    width = max(20, min(100, shutil.get_terminal_size().columns - 14))
    last = f"{figure.name}: {figure.values[-1]:.6g} at step {figure.steps[-1]}"
    return f"{last}\n{plot(figure.steps, figure.values, width)}"
