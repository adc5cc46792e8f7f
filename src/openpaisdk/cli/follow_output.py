"""A followed job on the terminal: its log on stdout, everything else on stderr, its fate as exit status."""

from __future__ import annotations

import sys

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest, Frame
from openpaisdk.client.models import number, text
from openpaisdk.config.clusters import option_for
from openpaisdk.config.paths import display_path
from openpaisdk.output import duration, palette, print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus, Task
    from openpaisdk.output.log_levels import LevelFilter

WAITING = "WAITING"
STATUSES = {"SUCCEEDED": 0, "FAILED": 3, "STOPPED": 4}


def print_log(
    cluster: ClusterClient,
    wanted: FollowRequest,
    *,
    log: BinaryIO | LevelFilter | None = None,
    on_state: Callable[[str], None] | None = None,
    remarks: bool = True,
) -> str:
    """Write a job's log as it comes, and give the state it ended in (empty when it goes on)."""
    out = log if log is not None else sys.stdout.buffer
    known_state = final = ""
    printed = False
    last = b"\n"
    told: set[str] = set()
    sys.stdout.flush()
    try:
        for frame in follow(cluster, wanted):
            if frame.kind == "log":
                printed = True
                last = frame.data[-1:] or last
                out.write(frame.data)
                out.flush()
            elif frame.kind == "state":
                state = text(frame.head, "state")
                if on_state and state != known_state:
                    on_state(state)
                known_state = state
            elif frame.kind == "end":
                final = text(frame.head, "state")
            elif remarks:
                _remark(frame, wanted, told)
    except KeyboardInterrupt:
        print_notice(
            f"\nStopped watching; the job goes on. Come back with: pai logs -f {_shell_name(cluster, wanted)}"
        )
        raise
    # What is said next begins a line of its own, also where both streams end up in one place. It goes to
    # stderr: stdout gets the job's own bytes and no others.
    shares = out.isatty() and sys.stderr.isatty()
    if last != b"\n" and (shares or (wanted.follow and final)):
        print_notice("")
    if not printed and not final and sys.stderr.isatty():
        print_notice(f"{wanted.name} is {known_state or 'UNKNOWN'} and has printed nothing yet.")
    return final


CANNOT_GO_ON, GOES_ON = "Degraded", "Recovered"
# What takes minutes and would else look like nothing, and that a trouble we told of is over.
_WORTH_KNOWING = frozenset(("Pulling", "Pulled", GOES_ON))


def _remark(frame: Frame, wanted: FollowRequest, told: set[str]) -> None:
    warns = text(frame.head, "type") == "Warning"
    if frame.kind == "event" and (warns or text(frame.head, "reason") in _WORTH_KNOWING):
        message = text(frame.head, "message")
        if text(frame.head, "reason") == GOES_ON:
            told.clear()
        if message not in told:
            told.add(message)
            line = f"{wanted.name}: {message}"
            print_notice(palette(sys.stderr).paint(line, "yellow") if warns else line)
    elif frame.kind == "lost":
        print_notice("The cluster went away. Waiting for it to come back (Ctrl-C to leave; the job goes on).")
    elif frame.kind == "back":
        print_notice("The cluster is back.")


def report_outcome(cluster: ClusterClient, wanted: FollowRequest, state: str) -> int:
    """Say how a job ended and where its files are; the exit status of the command that waited for it."""
    job = cluster.job(wanted.name, wanted.user)
    colours = palette(sys.stderr)
    why = reason(job)
    bad = [task for task in job.tasks if task.state == "FAILED"] if state == "SUCCEEDED" else []
    # The tasks of an array are each for themselves; who waits for all wants to know of those that failed.
    how = "ended" if bad else colours.state(state)
    if bad:
        few = ", ".join(map(_failed, bad[:5])) + (", ..." if len(bad) > 5 else "")
        why = f"{len(bad)} of its {len(job.tasks)} tasks failed: {few}"
    began = job.launched_ms is not None
    when = f"after {duration(job.launched_ms, job.completed_ms)}" if began else "before it started"
    line = f"{job.name} {how} {when}"
    print_notice(line + (f": {why}" if why else ""))
    role, index = job.trigger_task
    first = job.tasks[0].role if job.tasks else ""
    tasks = job.tasks
    if state == "FAILED" and role and (wanted.role or first, wanted.index or 0) != (role, index):
        which = f"--role {role}" + (f" --index {index}" if index else "")
        how = f"{role}[{index}] failed" + (f" with {why}" if why.startswith("exit code") else "")
        print_notice(f"{how}; see: pai logs {which} {_shell_name(cluster, wanted)}")
        tasks = [task for task in tasks if (task.role, task.index) == (role, index)]
    for folder in task_folders(cluster, job, tasks)[:1]:
        print_notice(f"Its files are in {display_path(folder)}")
    return STATUSES.get("FAILED" if bad else state, 1)


def _failed(task: Task) -> str:
    code = task.origin_exit_code
    return f"{task.role}[{task.index}]" + ("" if code is None else f" (exit code {code})")


def task_folders(cluster: ClusterClient, job: JobStatus, tasks: list[Task] | None = None) -> list[str]:
    """The folders in which the tasks of a job ran, where they can be seen from here."""
    if not cluster.is_embedded:
        return []
    from openpaisdk.embedded.home import work_folder

    return [
        folder
        for task in (job.tasks if tasks is None else tasks)
        if (folder := work_folder(task.container_id))
    ]


def reason(job: JobStatus) -> str:
    """Why a job ended as it did, in a few words."""
    if job.state == "FAILED":
        code = job.origin_exit_code
        if code is None or (job.exit_code or 0) < 0:  # what the cluster itself says of the end
            code = job.exit_code
        words = [] if code is None else [f"exit code {code}"]
        said = (job.diagnostics.strip().splitlines() or [""])[0]
        _, told, why = said.partition(f"failed with exit code {job.exit_code}: ")
        if told or (job.origin_exit_code is None and said):
            words.append(why or said)
        return ", ".join(words)
    if job.state == "STOPPED":
        # It may be that it could not start, and why.
        return " ".join(["stopped on request", *(f"({line})" for line in job.diagnostics.splitlines()[1:2])])
    return ""


def causes(job: JobStatus) -> dict[str, str]:
    """What is known of why a job failed: the cause, what to do about it, and what its program said last."""
    from openpaisdk.client.models import mapping_at, name_list, text

    if job.state != "FAILED":
        return {}
    status = mapping_at(job.raw, "jobStatus")
    spec, runtime = (
        mapping_at(status, "appExitSpec"),
        mapping_at(mapping_at(status, "appExitMessages"), "runtime"),
    )
    lines = [line for line in text(mapping_at(runtime, "errorLogs"), "user").splitlines() if line.strip()]
    found = {
        "cause": text(spec, "reason"),
        "what to do": next(iter(name_list(spec, "solution")), ""),
        "last line": lines[-1].strip() if lines else "",
    }
    return {key: value for key, value in found.items() if value}


def announce_task(cluster: ClusterClient, wanted: FollowRequest) -> None:
    """Of a job with several tasks one is shown: say which, unless it was named."""
    if wanted.role or wanted.index is not None:
        return
    tasks = cluster.job(wanted.name, wanted.user).tasks
    if tasks:
        say_which(tasks[0].role, len(tasks))


def say_which(role: str, count: int) -> None:
    """The sentence itself, for whoever knows the job without asking."""
    if count > 1:
        print_notice(f"showing {role}[0], the first of {count} tasks; --role and --index show others")


def follow_to_end(cluster: ClusterClient, wanted: FollowRequest, *, log: BinaryIO | None = None) -> int:
    """Log, then fate: what ``--follow`` does."""
    state = print_log(cluster, wanted, log=log)
    return report_outcome(cluster, wanted, state)


def wait_for_job(
    cluster: ClusterClient,
    name: str,
    user: str = "",
    *,
    on_state: Callable[[str], None] | None = None,
    command: str = "wait",
) -> str:
    """No log, only the end: what ``--wait`` does. The state it ended in. ``command`` brings one back here."""
    from openpaisdk.cli.pending_reason import REASONS

    state = ""
    told: set[str] = set()
    why: Frame | None = None
    since = 0
    wanted = FollowRequest(name, user, stream=NO_LOG)
    if on_state is None and sys.stderr.isatty():  # who waits at a terminal wants to see that something moves
        on_state = lambda now: print_notice(f"{name} {palette(sys.stderr).state(now)}")  # noqa: E731
    try:
        for frame in follow(cluster, wanted):
            if frame.kind in ("state", "end"):
                now = text(frame.head, "state")
                if now != state and on_state:
                    on_state(now)
                state = now
            elif frame.kind == "event" and text(frame.head, "reason") not in (CANNOT_GO_ON, GOES_ON):
                # After a lost connection all come again; only what was said since is news.
                said = number(frame.head, "time") or since + 1
                if text(frame.head, "reason") in REASONS and said >= since:
                    why, since = frame, said
            else:
                _remark(frame, wanted, told)
            # Events may come before the state, and those of a job that runs tell of its past.
            if why and state == WAITING:
                told.intersection_update((text(why.head, "message"),))
                _remark(why, wanted, told)
                why = None
    except KeyboardInterrupt:
        back = f"pai {command} {_shell_name(cluster, wanted)}"
        print_notice(f"\nStopped waiting; the job goes on. Come back with: {back}")
        raise
    return state


def _shell_name(cluster: ClusterClient, wanted: FollowRequest) -> str:
    """The job as it is written in a command, with its cluster where another one is selected."""
    name = f"{wanted.user}~{wanted.name}" if wanted.user not in ("", cluster.user) else wanted.name
    return option_for(cluster.alias) + name
