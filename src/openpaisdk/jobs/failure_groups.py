"""Groups of failed tasks that have one cause, for the summary of a job with many tasks.

Numbers in a message do not distinguish causes: a step, a size or an address differs with every task.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openpaisdk.client.models import Task
    from openpaisdk.jobs.task_array import TaskArray

MAX_GROUPS = 5
_MAX_NAMED_TASKS = 3
_MAX_CAUSE_CHARS = 300
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class FailureGroup:
    """Failed tasks with the same exit code and cause. ``cause`` is that of the first one."""

    __slots__ = ("cause", "exit_code", "tasks")

    def __init__(self, exit_code: int | None, cause: str):
        self.exit_code = exit_code
        self.cause = cause
        self.tasks: list[Task] = []


def failure_groups(tasks: Sequence[Task]) -> list[FailureGroup]:
    """The failed tasks by cause, the largest group first."""
    groups: dict[tuple[int | None, str], FailureGroup] = {}
    for task in tasks:
        if task.state != "FAILED":
            continue
        code, cause = task.own_exit_code, task.cause[:_MAX_CAUSE_CHARS]
        cause = cause.removeprefix(f"Exit code {code}").removeprefix(":").strip()
        key = (code, _NUMBERS.sub("0", cause))
        group = groups.setdefault(key, FailureGroup(code, cause))
        group.tasks.append(task)
    return sorted(groups.values(), key=lambda group: -len(group.tasks))


def failure_lines(tasks: Sequence[Task], array: TaskArray | None, job: str) -> list[str]:
    """Why tasks failed, two lines for each cause; ``job`` are the arguments that name it in a command."""
    groups = failure_groups(tasks)
    lines = []
    for group in groups[:MAX_GROUPS]:
        first = group.tasks[0]
        how = "failed" if group.exit_code is None else f"exited with {group.exit_code}"
        count = "1 task" if len(group.tasks) == 1 else f"{len(group.tasks)} tasks"
        cause = f": {group.cause}" if group.cause else ""
        lines += [
            f"{count} {how} ({_which(group.tasks, array)}){cause}",
            f"  pai logs {job} --task {first.role}:{first.index}",
        ]
    if len(groups) > MAX_GROUPS:
        rest = sum(len(group.tasks) for group in groups[MAX_GROUPS:])
        lines.append(
            f"{rest} more failed for {len(groups) - MAX_GROUPS} other causes: pai job-status {job} tasks"
        )
    return lines


def _which(tasks: Sequence[Task], array: TaskArray | None) -> str:
    """The values that these tasks have in common, and the first of them."""
    names = [f"{task.role}[{task.index}]" for task in tasks[:_MAX_NAMED_TASKS]]
    if len(tasks) > len(names):
        names.append(f"{len(tasks) - len(names)} more")
    listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    values = _common_values(tasks, array) if array else {}
    return "; ".join(filter(None, (" ".join(f"{name}={value}" for name, value in values.items()), listed)))


def _common_values(tasks: Sequence[Task], array: TaskArray) -> Mapping[str, str]:
    """Values that all these tasks have, of variables whose values differ between tasks of the job."""
    from paiprotocol.jobs.problems import shorten

    common = {
        name: value
        for name, value in array.values_of(tasks[0].index).items()
        if len(set(array.variables[name])) > 1 or len(tasks) == 1
    }
    for task in tasks[1:]:
        if not common:
            break
        values = array.values_of(task.index)
        common = {name: value for name, value in common.items() if values.get(name) == value}
    return {name: shorten(value) for name, value in common.items()}
