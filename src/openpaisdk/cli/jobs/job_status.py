"""``pai job-status``: one job with what it runs, its tasks and its events."""

from __future__ import annotations

import sys

from openpaisdk.cli.jobs.follow_output import task_folder
from openpaisdk.cli.parser import command_parser
from openpaisdk.client.job_config import parse_config, roles_of
from openpaisdk.client.models import text
from openpaisdk.config.paths import display_path
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.outcome import failure_details, outcome_reason
from openpaisdk.output import (
    format_age,
    format_duration,
    format_time,
    palette,
    print_notice,
    show,
    table,
    terminal_columns,
)
from openpaisdk.output.untrusted_text import printable
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.job_config import RoleConfig
    from openpaisdk.client.models import Event, JobStatus, Task
    from openpaisdk.jobs.task_array import TaskArray

LABEL_WIDTH = 10
MAX_FOLDERS = 4
MAX_EVENTS = 5
MAX_TASKS = 20
"""Tasks in the overview on a terminal: more would push the rest out of the window."""
MAX_COMMAND_LINES = 6
_VALUE_WIDTH = 8
"""What is left of a value of an array where the columns are too many for the terminal."""
HOST_IMAGE = "host"
"""The image of jobs that run without a container."""


def job_status(argv: list[str]) -> int:
    """``pai job-status [options] job [config|ssh|events|tasks]``"""
    parser = command_parser(
        "job-status",
        "pai job-status train_k3v9xq\npai job-status train_k3v9xq tasks\n"
        "pai job-status train_k3v9xq config > again.yaml",
        "On a terminal, long commands and lists of tasks are shortened; in a pipe they are complete.",
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "query",
        nargs="?",
        choices=("config", "ssh", "events", "tasks"),
        help="print its configuration, ssh commands, events, or all its tasks with their files instead",
    )
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    if args.query == "config":
        import yaml

        config = cluster.job_config(args.job, args.user)
        show(yaml.safe_load(config), "yaml" if args.output == "table" else args.output, str)
        return 0
    if args.query == "ssh":
        ssh = cluster.job_ssh(args.job, args.user)
        show(ssh, args.output, lambda: _ssh_lines(ssh))
        return 0
    columns = terminal_columns(sys.stdout)
    if args.query == "events":
        events = cluster.events(args.job, args.user)
        show([e.raw for e in events], args.output, lambda: _event_table(events, None))
        if not events and args.output == "table":
            print_notice(f"{args.job} has no events: nothing unusual has happened to it.")
        return 0
    job = cluster.job(args.job, args.user)
    if args.output != "table" and job.tasks:
        _add_array_values(job, _array(_config(cluster, job)))
    if args.query == "tasks":
        show(
            [{"taskRole": task.role, **task.raw} for task in job.tasks],
            args.output,
            lambda: _task_table(job.tasks, columns, _array(_config(cluster, job)), _folders(cluster, job)),
        )
        if not job.tasks and args.output == "table":
            print_notice(f"{job.name} is {job.state} and has no tasks yet.")
        return 0
    reason = text(job.raw, "reason") or outcome_reason(job)
    if job.state == "WAITING" and not reason:
        from openpaisdk.cli.jobs.pending_reason import pending_reason

        reason = pending_reason(cluster, job)
    raw = {**job.raw, "reason": reason} if job.state == "WAITING" else job.raw

    def render() -> str:
        from openpaisdk.cli.jobs.pending_reason import unmet_requests

        for message in unmet_requests(cluster, job):
            print_notice(message)
        return _overview(cluster, job, reason, columns)

    show(raw, args.output, render)
    return 0


def _ssh_lines(info: dict[str, object]) -> str:
    """An ssh command for each container."""
    pair, containers = info.get("keyPair"), info.get("containers")
    key = str(pair.get("privateKeyFileName") or "") if isinstance(pair, dict) else ""
    link = str(pair.get("privateKeyDirectDownloadLink") or "") if isinstance(pair, dict) else ""
    identity = f"-i {key} " if key else ""
    lines = [
        f"ssh {identity}-p {c.get('sshPort')} {c.get('user') or 'root'}@{c.get('sshIp')}"
        for c in (containers if isinstance(containers, list) else [])
        if isinstance(c, dict)
    ]
    return "\n".join([*lines, *([f"Download the key {key} from {link}"] if link else [])])


def _overview(cluster: ClusterClient, job: JobStatus, reason: str, columns: int | None) -> str:
    """The job in one picture: outcome, times, what it runs, files, tasks and latest events."""
    colours = palette(sys.stdout)
    failed = sum(task.state == "FAILED" for task in job.tasks)
    hides_failures = failed and job.state == "SUCCEEDED"
    failures = f" ({failed} of {len(job.tasks)} tasks failed)" if hides_failures else ""
    config = _config(cluster, job)
    roles = roles_of(config)
    lines = [f"{job.name}  {colours.state(job.state)}{failures}" + (f"  {reason}" if reason else "")]
    lines += [
        _line("user", job.user),
        _line("vc", job.virtual_cluster),
        _line("submitted", _time(job.submitted_ms, columns)),
        _line("started", _time(job.launched_ms, columns)),
        _line("ended", _time(job.completed_ms, columns)),
        _line("duration", format_duration(job.launched_ms, job.completed_ms)),
        _line("retries", str(job.retries)),
    ]
    lines += [_line(key, printable(value)) for key, value in failure_details(job).items()]
    lines.append(_line("priority", text(job.raw, "jobPriority") or "default"))
    if job.tags:
        lines.append(_line("tags", ", ".join(job.tags)))
    if len(roles) == 1:
        lines += _one_role(roles[0], columns)
    if notebook := _notebook(cluster, job):
        lines.append(_line("notebook", notebook))
    lines.append(_line("page", cluster.job_page(job.name, job.user)))
    lines += _file_lines(job, _folders(cluster, job))
    if len(roles) > 1:
        lines += ["", _role_table(roles, columns)]
    if job.tasks:
        array = _array(config)
        lines += ["", *_task_lines(job, columns, array)]
        if failed and len(job.tasks) > 1:
            lines += ["", *_failure_lines(cluster, job, array)]
    if events := _latest_events(cluster, job):
        lines += ["", _event_table(events[:MAX_EVENTS], columns)]
        if len(events) > MAX_EVENTS:
            lines.append(f"and {len(events) - MAX_EVENTS} earlier events: pai job-status {job.name} events")
    return "\n".join(lines)


def _notebook(cluster: ClusterClient, job: JobStatus) -> str:
    """Where the Jupyter server of a running interactive notebook is; empty for other jobs."""
    from openpaisdk.jobs.notebook_link import find_notebook_server, runs_notebook_server

    if job.state != "RUNNING":
        return ""
    try:
        config = cluster.job_config(job.name, job.user)
    except PaiError:
        return ""
    if not runs_notebook_server(config):
        return ""
    from openpaisdk.cli.jobs.job_selection import job_argument

    again = f"pai connect-job {job_argument(cluster, job.name, job.user)}"
    server = find_notebook_server(cluster, job.name, job.user, config)
    if server is None:
        return f"does not answer yet; wait for it with: {again}"
    if server.token and cluster.is_embedded:
        return server.link(server.port)
    return f"at port {server.port} of the task; get its link with: {again}"


def _line(label: str, value: str) -> str:
    return f"  {label:<{LABEL_WIDTH}} {value}"


def _time(ms: int | None, columns: int | None) -> str:
    """A point in time; on a terminal also relative to now."""
    if ms is None or columns is None:
        return format_time(ms)
    return f"{format_time(ms)}  ({format_age(ms)})"


def _config(cluster: ClusterClient, job: JobStatus) -> dict[str, object]:
    """What the job runs; empty if the cluster does not tell this user."""
    try:
        return parse_config(cluster.job_config(job.name, job.user))
    except PaiError:
        return {}


def _array(config: dict[str, object]) -> TaskArray | None:
    """The values of the job's tasks, if it is an array over values."""
    extras = config.get("extras")
    additions = extras.get("openpaisdk") if isinstance(extras, dict) else None
    if not isinstance(additions, dict) or not additions.keys() & {"array", "arrayRows"}:
        return None
    from openpaisdk.jobs.task_array import array_of_job

    return array_of_job(config)


def _add_array_values(job: JobStatus, array: TaskArray | None) -> None:
    """Add the array's values to each task in the raw status of the job."""
    if array is not None:
        for task in job.tasks:
            task.raw["arrayValues"] = array.values_of(task.index)


def _latest_events(cluster: ClusterClient, job: JobStatus) -> list[Event]:
    try:
        return cluster.events(job.name, job.user)
    except PaiError:  # API version 1 has no events
        return []


def _one_role(role: RoleConfig, columns: int | None) -> list[str]:
    tasks = f" each, {role.instances} tasks" if role.instances > 1 else ""
    first, *more = _wrap(role.commands, columns) or ["-"]
    return [
        _line("image", _image(role)),
        _line("resources", _resources(role) + tasks),
        _line("command", first),
        *(_line("", line) for line in more),
    ]


def _wrap(commands: list[str], columns: int | None) -> list[str]:
    """The lines of the commands; on a terminal wrapped, and only the first of many."""
    lines = [printable(line) for command in commands for line in command.splitlines() if line.strip()]
    if columns is None:
        return lines
    from textwrap import wrap

    space = max(20, columns - LABEL_WIDTH - 3)
    lines = [part for line in lines for part in wrap(line, space, break_on_hyphens=False)]
    if len(lines) > MAX_COMMAND_LINES:
        omitted = len(lines) - MAX_COMMAND_LINES + 1
        lines = [*lines[: MAX_COMMAND_LINES - 1], f"and {omitted} more lines; the query config shows all"]
    return lines


def _image(role: RoleConfig) -> str:
    return "none" if role.image in ("", HOST_IMAGE) else role.image


def _resources(role: RoleConfig) -> str:
    parts = [f"{role.cpu} core{'' if role.cpu == 1 else 's'}", f"{_memory(role.memory_mb)} memory"]
    if role.gpu:
        parts.append(f"{role.gpu} GPU{'' if role.gpu == 1 else 's'}")
    return ", ".join(parts)


def _memory(megabytes: int) -> str:
    return f"{megabytes // 1024} GB" if megabytes and megabytes % 1024 == 0 else f"{megabytes} MB"


def _role_table(roles: list[RoleConfig], columns: int | None) -> str:
    rows = [
        [
            role.name,
            str(role.instances),
            str(role.cpu),
            _memory(role.memory_mb),
            str(role.gpu),
            _image(role),
            " && ".join(" ".join(command.split()) for command in role.commands),
        ]
        for role in roles
    ]
    headers = ["ROLE", "TASKS", "CORES", "MEMORY", "GPUS", "IMAGE", "COMMAND"]
    return table(
        headers, rows, right=frozenset((1, 2, 3, 4)), columns=columns, fit=((6, 24), (5, 16), (6, 12))
    )


def _folders(cluster: ClusterClient, job: JobStatus) -> dict[str, str]:
    """The working folders of the tasks, where they are on this machine."""
    folders = {f"{task.role}[{task.index}]": task_folder(cluster, task) for task in job.tasks}
    return {task: display_path(folder) for task, folder in folders.items() if folder}


def _file_lines(job: JobStatus, folders: dict[str, str]) -> list[str]:
    """Where the files are; by task, if there are several."""
    if len(folders) < 2:
        return [_line("files", folder) for folder in folders.values()]
    width = max(map(len, folders))
    items = list(folders.items())
    lines = [_line("files", f"{task:<{width}}  {folder}") for task, folder in items[:MAX_FOLDERS]]
    if len(items) > MAX_FOLDERS:
        lines.append(_line("", f"and {len(items) - MAX_FOLDERS} more: pai job-status {job.name} tasks"))
    return lines


def _task_lines(job: JobStatus, columns: int | None, array: TaskArray | None) -> list[str]:
    """The tasks; on a terminal only some of many, those that failed first."""
    tasks = job.tasks
    if columns is None or len(tasks) <= MAX_TASKS:
        return [_task_table(tasks, columns, array)]
    shown = sorted(tasks, key=lambda task: _ORDER.get(task.state, 1))[:MAX_TASKS]
    counts = dict.fromkeys(task.state for task in sorted(tasks, key=lambda task: _ORDER.get(task.state, 1)))
    summary = ", ".join(f"{sum(task.state == state for task in tasks)} {state}" for state in counts)
    omitted = len(tasks) - len(shown)
    return [
        f"{len(tasks)} tasks: {summary}",
        _task_table(shown, columns, array),
        f"and {omitted} more: pai job-status {job.name} tasks",
    ]


def _failure_lines(cluster: ClusterClient, job: JobStatus, array: TaskArray | None) -> list[str]:
    """Why tasks failed, in a few lines, however many there are."""
    from openpaisdk.cli.jobs.job_selection import job_argument
    from openpaisdk.jobs.failure_groups import failure_lines

    lines = failure_lines(job.tasks, array, job_argument(cluster, job.name, job.user))
    return [printable(line) for line in lines]


_ORDER = {"FAILED": 0, "STOPPED": 2, "WAITING": 3, "SUCCEEDED": 4}
"""The states that need attention come first."""


def _task_table(
    tasks: list[Task],
    columns: int | None,
    array: TaskArray | None = None,
    folders: dict[str, str] | None = None,
) -> str:
    """A table of tasks, with a column for each variable of an array, and their folders, if given."""
    if not tasks:
        return ""
    colours = palette(sys.stdout)
    names = list(array.variables) if array else []
    rows = []
    for task in tasks:
        values = array.values_of(task.index) if array else {}
        rows.append(
            [
                f"{task.role}[{task.index}]",
                task.state,
                "-" if task.own_exit_code is None else str(task.own_exit_code),
                format_duration(task.launched_ms, task.completed_ms),
                task.ip or "-",
                " ".join(f"{label}={ports}" for label, ports in task.ports.items()) or "-",
                *(values.get(name, "-") for name in names),
                task.cause or "-",
                (folders or {}).get(f"{task.role}[{task.index}]", "-"),
            ]
        )
    address, ports, first = 4, 5, 6
    of_values = [(column, _VALUE_WIDTH) for column in range(first, first + len(names))]
    cause = first + len(names)
    files = cause + 1
    # The overview has the causes below the table.
    hidden = [] if folders is not None and any(task.cause for task in tasks) else [cause]
    return table(
        ["TASK", "STATE", "EXIT", "DURATION", "ADDRESS", "PORTS", *names, "CAUSE", "FILES"],
        rows,
        right=frozenset({2, 3}),
        paint=lambda i, cell: colours.state(cell) if i == 1 else cell,
        hide=hidden if folders else [*hidden, files],
        columns=columns,
        # The folder is what the user came for: it is never shortened.
        fit=((cause, 30), (ports, 0), (address, 0))
        if folders
        else ((ports, 16), (ports, 0), (address, 0), *of_values),
    )


def _event_table(events: list[Event], columns: int | None) -> str:
    """A table of events, the newest first, with the time of the last occurrence."""
    if not events:
        return ""
    rows = [
        [
            format_time(event.last_ms),
            event.kind,
            event.reason,
            event.message + (f" ({event.count} times)" if event.count > 1 else ""),
        ]
        for event in events
    ]
    kind, message = 1, 3
    return table(
        ["TIME", "TYPE", "REASON", "MESSAGE"],
        rows,
        columns=columns,
        fit=((message, 50), (kind, 0), (message, 20)),
    )
