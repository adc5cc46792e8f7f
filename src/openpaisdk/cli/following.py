"""A followed job on the terminal: its log on stdout, everything else on stderr, its fate as exit status."""

from __future__ import annotations

import sys

from openpaisdk.client.following import NO_LOG, Frame, Wanted
from openpaisdk.client.values import text
from openpaisdk.config.folders import shown
from openpaisdk.jobs.following import frames
from openpaisdk.output import duration, palette, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from openpaisdk.client import Cluster
    from openpaisdk.client.values import Job, Task
    from openpaisdk.output.levels import Sieve

STATUSES = {"SUCCEEDED": 0, "FAILED": 3, "STOPPED": 4}


def print_log(
    cluster: Cluster,
    wanted: Wanted,
    *,
    log: BinaryIO | Sieve | None = None,
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
        for frame in frames(cluster, wanted):
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
        say(
            f"\nStopped watching; the job goes on. Come back with: pai logs -f {_shell_name(cluster, wanted)}"
        )
        raise
    # Only where log and remarks share a terminal: a pipe gets the job's own bytes and no others.
    if last != b"\n" and out.isatty() and sys.stderr.isatty():
        say("")
    if not printed and not final and sys.stderr.isatty():
        say(f"{wanted.name} is {known_state or 'UNKNOWN'} and has printed nothing yet.")
    return final


# What takes minutes and would else look like nothing.
_WORTH_KNOWING = frozenset(("Pulling", "Pulled"))


def _remark(frame: Frame, wanted: Wanted, told: set[str]) -> None:
    warns = text(frame.head, "type") == "Warning"
    if frame.kind == "event" and (warns or text(frame.head, "reason") in _WORTH_KNOWING):
        message = text(frame.head, "message")
        if message not in told:
            told.add(message)
            line = f"{wanted.name}: {message}"
            say(palette(sys.stderr).paint(line, "yellow") if warns else line)
    elif frame.kind == "lost":
        say("The cluster went away. Waiting for it to come back (Ctrl-C to leave; the job goes on).")
    elif frame.kind == "back":
        say("The cluster is back.")


def tell_end(cluster: Cluster, wanted: Wanted, state: str) -> int:
    """Say how a job ended and where its files are; the exit status of the command that waited for it."""
    job = cluster.job(wanted.name, wanted.user)
    colours = palette(sys.stderr)
    why = reason(job)
    line = f"{job.name} {colours.state(state)} after {duration(job.launched_ms, job.completed_ms)}"
    say(line + (f": {why}" if why else ""))
    role, index = job.ended_by
    first = job.tasks[0].role if job.tasks else ""
    tasks = job.tasks
    if state == "FAILED" and role and (wanted.role or first, wanted.index or 0) != (role, index):
        which = f"--role {role}" + (f" --index {index}" if index else "")
        how = f"{role}[{index}] failed" + (f" with {why}" if why.startswith("exit code") else "")
        say(f"{how}; see: pai logs {which} {_shell_name(cluster, wanted)}")
        tasks = [task for task in tasks if (task.role, task.index) == (role, index)]
    for folder in files_of(cluster, job, tasks)[:1]:
        say(f"Its files are in {shown(folder)}")
    if state == "SUCCEEDED" and (bad := [t for t in job.tasks if t.state == "FAILED"]):
        # The tasks of an array are each for themselves; who waits for all wants to know of those.
        few = ", ".join(f"{t.role}[{t.index}]" for t in bad[:5]) + (", ..." if len(bad) > 5 else "")
        say(f"{len(bad)} of its {len(job.tasks)} tasks failed: {few}")
        return STATUSES["FAILED"]
    return STATUSES.get(state, 1)


def files_of(cluster: Cluster, job: Job, tasks: list[Task] | None = None) -> list[str]:
    """The folders in which the tasks of a job ran, where they can be seen from here."""
    if not cluster.is_embedded:
        return []
    from openpaisdk.local.home import work_folder

    return [
        folder
        for task in (job.tasks if tasks is None else tasks)
        if (folder := work_folder(task.container_id))
    ]


def reason(job: Job) -> str:
    """Why a job ended as it did, in a few words."""
    if job.state == "FAILED":
        code = job.origin_exit_code if job.origin_exit_code is not None else job.exit_code
        words = [] if code is None else [f"exit code {code}"]
        if job.origin_exit_code is None and job.diagnostics:
            words.append(job.diagnostics.strip().splitlines()[0])
        return ", ".join(words)
    if job.state == "STOPPED":
        return "stopped on request"
    return ""


def tell_which(cluster: Cluster, wanted: Wanted) -> None:
    """Of a job with several tasks one is shown: say which, unless it was named."""
    if wanted.role or wanted.index is not None:
        return
    tasks = cluster.job(wanted.name, wanted.user).tasks
    if tasks:
        say_which(tasks[0].role, len(tasks))


def say_which(role: str, count: int) -> None:
    """The sentence itself, for whoever knows the job without asking."""
    if count > 1:
        say(f"showing {role}[0], the first of {count} tasks; --role and --index show others")


def follow_to_end(cluster: Cluster, wanted: Wanted, *, log: BinaryIO | None = None) -> int:
    """Log, then fate: what ``--follow`` does."""
    state = print_log(cluster, wanted, log=log)
    return tell_end(cluster, wanted, state)


def wait_to_end(
    cluster: Cluster,
    name: str,
    user: str = "",
    *,
    on_state: Callable[[str], None] | None = None,
    command: str = "wait",
) -> str:
    """No log, only the end: what ``--wait`` does. The state it ended in. ``command`` brings one back here."""
    state = ""
    wanted = Wanted(name, user, stream=NO_LOG)
    if on_state is None and sys.stderr.isatty():  # who waits at a terminal wants to see that something moves
        on_state = lambda now: say(f"{name} {palette(sys.stderr).state(now)}")  # noqa: E731
    try:
        for frame in frames(cluster, wanted):
            if frame.kind in ("state", "end"):
                now = text(frame.head, "state")
                if now != state and on_state:
                    on_state(now)
                state = now
    except KeyboardInterrupt:
        back = f"pai {command} {_shell_name(cluster, wanted)}"
        say(f"\nStopped waiting; the job goes on. Come back with: {back}")
        raise
    return state


def _shell_name(cluster: Cluster, wanted: Wanted) -> str:
    return f"{wanted.user}~{wanted.name}" if wanted.user not in ("", cluster.user) else wanted.name
