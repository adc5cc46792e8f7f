"""Attempts in ``pai logs``: ``--attempt`` and ``--all-attempts``, numbered from 1 for each task."""

from __future__ import annotations

from itertools import islice

from openpaisdk.client.task_attempts import attempts_of_task, attempts_of_tasks, was_retried
from openpaisdk.output import print_notice
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from openpaisdk.cli.jobs.task_logs import TaskName
    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient
    from openpaisdk.client.models import JobStatus
    from openpaisdk.client.task_attempts import TaskAttempt


def add_attempt_options(parser: Parser) -> None:
    from openpaisdk.cli.parser import int_at_least

    parser.add_argument(
        "--attempt",
        type=int_at_least(1),
        metavar="N",
        help="the log of the task's Nth attempt, 1 being the first (default: the latest one)",
    )
    parser.add_argument("--all-attempts", action="store_true", help="the logs of all attempts, oldest first")


def check_attempt_options(args: argparse.Namespace) -> None:
    if args.attempt and args.all_attempts:
        raise UsageError("--attempt and --all-attempts contradict each other.")
    if args.attempt and args.follow:
        raise UsageError(
            "--attempt shows one attempt, and -f follows the job over all that come.",
            hint="-f --all-attempts begins with the first one.",
        )
    if args.all_attempts and args.tail is not None:
        raise UsageError("--tail counts lines of one attempt: it cannot be combined with --all-attempts.")


def select_attempts(
    cluster: ClusterClient, job: JobStatus, tasks: Sequence[TaskName], number: int
) -> dict[TaskName, TaskAttempt]:
    """The attempt with this number, counted from 1, of each task that has it; an error if none has."""
    selected: dict[TaskName, TaskAttempt] = {}
    counts: list[int] = []
    for task in tasks:
        attempts = list(islice(attempts_of_task(cluster, job, *task), number))
        counts.append(len(attempts))
        if len(attempts) == number:
            selected[task] = attempts[-1]
    if not selected:
        most = max(counts, default=0)
        count = {0: "no attempt yet", 1: "1 attempt"}.get(most, f"{most} attempts")
        raise UsageError(f"The job {job.name} has no attempt {number}: it has {count}.")
    return selected


def report_earlier(
    cluster: ClusterClient, job: JobStatus, tasks: Sequence[TaskName], args: argparse.Namespace
) -> None:
    """Say that only the latest attempt is shown, if there are others, with the command that shows all."""
    if was_retried(job, tasks):
        print_notice(
            f"{job.name} was retried; this is the log of the latest attempt. All of them: "
            f"{_command_for_all_attempts(cluster, args)} (--attempt 1: the first one)"
        )


def _command_for_all_attempts(cluster: ClusterClient, args: argparse.Namespace) -> str:
    """The command to copy that shows the same logs, but of all attempts."""
    from shlex import quote

    from openpaisdk.cli.jobs.job_selection import job_argument

    given = [("--task", name) for name in args.task]
    given += [("--role", args.role), ("--index", args.index), ("--level", args.level), ("--grep", args.grep)]
    given += [("--stream", args.stream)] if args.stream != "all" else []
    options = [f"{option} {quote(str(value))}" for option, value in given if value not in (None, "")]
    follow = [*(["-f"] if args.follow else []), *(["--timestamps"] if args.timestamps else [])]
    job = job_argument(cluster, args.job, args.user)
    return " ".join(["pai logs", *follow, "--all-attempts", *options, job])


class AttemptHeadings:
    """Notices between the logs of the attempts of a task. ``label``: its name, if several are shown."""

    def __init__(self, attempts: Iterable[TaskAttempt], label: str = ""):
        self._label = f"{label}, " if label else ""
        self._numbers = {attempt: number for number, attempt in enumerate(attempts, 1)}
        self._last: TaskAttempt | None = None

    def __call__(self, attempt: TaskAttempt) -> None:
        if attempt == self._last:
            return
        self._last = attempt
        # A retry while the job is followed is the next one.
        number = self._numbers.setdefault(attempt, len(self._numbers) + 1)
        print_notice(f"--- {self._label}attempt {number} ---")


class TaskHeadings:
    """Headings between the logs of several tasks; a single task is not named."""

    def __init__(self, cluster: ClusterClient, job: JobStatus, tasks: Sequence[TaskName]):
        from openpaisdk.cli.jobs.task_logs import label

        attempts = attempts_of_tasks(cluster, job)
        self._headings = {
            task: AttemptHeadings(attempts.get(task, ()), label(task) if len(tasks) > 1 else "")
            for task in tasks
        }

    def __call__(self, task: TaskName, attempt: TaskAttempt) -> None:
        self._headings[task](attempt)
