"""``pai top``: what tasks, jobs and nodes use now; live on a terminal, one table in a pipe."""

from __future__ import annotations

import sys
import time

from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.client.cluster_client import unexpected_response
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice, show, table, terminal_columns
from openpaisdk.output.terminal import is_terminal
from paiprotocol.transfer.sizes import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import Any

    from openpaisdk.client import ClusterClient

    Row = dict[str, Any]

INTERVAL_S = 2
ALL_USERS = "__all__"
# A cluster that has just started has its first sample after a second.
_FIRST_SAMPLE_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.2
_NOT_MEASURED = "-"
_USAGE_HEADERS = ("CPU", "MEMORY", "GPU", "GPU MEMORY", "READ/S", "WRITE/S")


def top(argv: list[str]) -> int:
    """``pai top [options] [job]``"""
    parser = command_parser(
        "top",
        "pai top\npai top train_k3v9xq\npai top train_k3v9xq -o json",
        "CPU is in cores, GPU in percent of the time. What is used stands before what was requested, or\n"
        "what the node has. On a terminal the table is kept up to date until Ctrl-C; in a pipe it is\n"
        "printed once. The web portal plots the same samples over time.",
    )
    parser.add_argument(
        "--user",
        default="",
        metavar="USER",
        help=f"the jobs' owner (default: you); {ALL_USERS} for all users",
    )
    parser.add_argument(
        "--interval",
        type=int_at_least(1),
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"how often the table is updated (default: {INTERVAL_S})",
    )
    parser.add_argument(
        "job", nargs="?", default="", help="the tasks of this job (default: nodes and your jobs)"
    )
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    view: _View = (
        _JobView(cluster, args.job, "" if args.user == ALL_USERS else args.user)
        if args.job
        else _ClusterView(cluster, args.user)
    )
    if args.output == "table" and is_terminal(sys.stdout):
        from openpaisdk.cli.jobs.live_screen import Poller, show_on_screen

        poller = Poller(cluster, view.query)
        show_on_screen(
            poller,
            lambda size: _picture(
                poller.head(view.title, args.interval, size.columns), view, poller.result, size
            ),
            lambda size: "\n".join(view.lines(poller.result, size.columns)[: size.lines]),
            args.interval,
        )
    usage = _first_sample(view.query)
    try:
        show(usage, args.output, lambda: "\n".join(view.lines(usage, terminal_columns(sys.stdout))))
        notice = view.notice(usage)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unexpected_response(cluster) from None
    if args.output == "table" and notice:
        print_notice(notice)
    return 0


def _first_sample(query: Callable[[], Row]) -> Row:
    """The current sample; of a cluster that has just started, its first one."""
    end = time.monotonic() + _FIRST_SAMPLE_TIMEOUT_S
    while True:
        usage = query()
        if usage.get("time") or usage.get("interval") is None or time.monotonic() > end:
            return usage
        time.sleep(_POLL_INTERVAL_S)


def _picture(head: str, view: _View, usage: Row, size: os.terminal_size) -> list[str]:
    lines = view.lines(usage, size.columns)
    notice = view.notice(usage)
    space = max(1, size.lines - 3)  # head, empty line, and the line of the cursor
    if len(lines) > space:
        lines = [*lines[: space - 1], f"and {len(lines) - space + 1} more"]
    return [head, "", *lines, *([notice] if notice and len(lines) < space else [])]


class _View:
    """What is asked for and how it is shown."""

    title = ""

    def __init__(self, cluster: ClusterClient):
        self._cluster = cluster

    def query(self) -> Row:
        raise NotImplementedError

    def lines(self, usage: Row, columns: int | None) -> list[str]:
        raise NotImplementedError

    def notice(self, usage: Row) -> str:
        """Why there is nothing to see; empty if there is."""
        raise NotImplementedError


class _ClusterView(_View):
    """Nodes, and running jobs of a user."""

    title = "Usage"

    def __init__(self, cluster: ClusterClient, user: str):
        super().__init__(cluster)
        self._with_user = user == ALL_USERS
        self._user = user or cluster.user

    def query(self) -> Row:
        return self._cluster.usage("" if self._with_user else self._user)

    def lines(self, usage: Row, columns: int | None) -> list[str]:
        lines = _usage_table(("NODE",), [((row["name"],), row) for row in usage["nodes"]], columns)
        if usage["jobs"]:
            name = (
                (lambda row: f"{row['user']}~{row['name']}") if self._with_user else (lambda row: row["name"])
            )
            rows = [((name(row), str(row["tasks"])), row) for row in usage["jobs"]]
            lines += ["", *_usage_table(("JOB", "TASKS"), rows, columns)]
        return lines

    def notice(self, usage: Row) -> str:
        if not usage["time"]:
            return _no_samples(usage)
        return "" if usage["jobs"] else "No running jobs. Run one with: pai sub -- echo hello"


class _JobView(_View):
    """Running tasks of a job."""

    def __init__(self, cluster: ClusterClient, job: str, user: str):
        super().__init__(cluster)
        self._job = job
        self._owner = user
        self.title = f"Tasks of {job}"

    def query(self) -> Row:
        usage = self._cluster.job_usage(self._job, self._owner)
        # The samples of the past are for plots.
        return {key: value for key, value in usage.items() if key != "series"}

    def lines(self, usage: Row, columns: int | None) -> list[str]:
        if not usage["tasks"]:
            return []
        rows = [((f"{row['role']}[{row['index']}]", row["node"]), row) for row in usage["tasks"]]
        return _usage_table(("TASK", "NODE"), rows, columns)

    def notice(self, usage: Row) -> str:
        if not usage["time"]:
            return _no_samples(usage)
        if usage["tasks"]:
            return ""
        return f"No task of {self._job} is running, or none was measured yet: see pai job-status {self._job}."


def _no_samples(usage: Row) -> str:
    if usage["interval"] is None:
        return "This cluster is set not to measure what tasks use."
    return f"The cluster has not measured anything yet; it does so every {usage['interval']:g} s."


def _usage_table(
    headers: Sequence[str], rows: Sequence[tuple[Sequence[str], Row]], columns: int | None
) -> list[str]:
    cells = [[*names, *_usage_cells(row)] for names, row in rows]
    first = len(headers)
    has_gpus = any(row["gpuTotal"] for _, row in rows)
    # In a narrow window I/O goes first, then long names are shortened.
    fit = [(first + 5, 0), (first + 4, 0), *((index, 12) for index in reversed(range(first))), (first + 3, 0)]
    return table(
        [*headers, *_USAGE_HEADERS],
        cells,
        right=frozenset(range(first, first + len(_USAGE_HEADERS)))
        | ({1} if headers[-1] == "TASKS" else set()),
        hide=() if has_gpus else (first + 2, first + 3),
        columns=columns,
        fit=fit,
        keep_ends=frozenset({0}),
    ).splitlines()


def _usage_cells(row: Row) -> list[str]:
    return [
        _of(f"{row['cpu']:.2f}", f"{row['cpuTotal']:g}" if row["cpuTotal"] else ""),
        _of(format_size(row["memory"]), format_size(row["memoryTotal"]) if row["memoryTotal"] else ""),
        _gpu_cell(row),
        _NOT_MEASURED if row["gpuMemory"] is None else format_size(row["gpuMemory"]),
        format_size(row["read"]),
        format_size(row["write"]),
    ]


def _of(used: str, total: str) -> str:
    return f"{used} of {total}" if total else used


def _gpu_cell(row: Row) -> str:
    if row["gpu"] is None or not row["gpuTotal"]:
        return _NOT_MEASURED
    share = f"{100 * row['gpu'] / row['gpuTotal']:.0f}%"
    return share if row["gpuTotal"] == 1 else f"{share} of {row['gpuTotal']}"
