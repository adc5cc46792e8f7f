"""Groups of failed tasks that have one cause, for the summary of a job with many tasks.

The web portal has the same groups (``portal/src/task_failures.ts``); the tests share their cases.
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
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


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
    values = common_values(groups[:MAX_GROUPS], tasks, array) if array else []
    lines = []
    for at, group in enumerate(groups[:MAX_GROUPS]):
        first = group.tasks[0]
        how = "failed" if group.exit_code is None else f"exited with {group.exit_code}"
        count = "1 task" if len(group.tasks) == 1 else f"{len(group.tasks)} tasks"
        cause = f": {group.cause}" if group.cause else ""
        lines += [
            f"{count} {how} ({_which(group.tasks, values[at] if values else {})}){cause}",
            f"  pai logs {job} --task {first.role}:{first.index}",
        ]
    if len(groups) > MAX_GROUPS:
        rest = sum(len(group.tasks) for group in groups[MAX_GROUPS:])
        lines.append(
            f"{rest} more failed for {len(groups) - MAX_GROUPS} other causes: pai job-status {job} tasks"
        )
    return lines


def common_values(
    groups: Sequence[FailureGroup], tasks: Sequence[Task], array: TaskArray
) -> list[dict[str, str]]:
    """Of each group the values that all its tasks have, and not all tasks of the job."""
    differing = _differing_names(tasks, array)
    found = []
    for group in groups:
        first, *others = group.tasks
        common = {name: value for name, value in _values(first, array).items() if name in differing}
        for task in others:
            if not common:
                break
            values = _values(task, array)
            common = {name: value for name, value in common.items() if values[name] == value}
        found.append(common)
    return found


def _differing_names(tasks: Sequence[Task], array: TaskArray) -> set[str]:
    """Variables whose values differ between tasks of the job."""
    candidates = {name for name, values in array.variables.items() if len(set(values)) > 1}
    found: set[str] = set()
    first = _values(tasks[0], array) if tasks else {}
    for task in tasks[1:]:
        if found == candidates:
            break
        values = _values(task, array)
        found.update(name for name in candidates if values[name] != first[name])
    return found


def _values(task: Task, array: TaskArray) -> dict[str, str]:
    values = array.values_of(task.index)
    return {name: values.get(name, "") for name in array.variables}


def _which(tasks: Sequence[Task], values: Mapping[str, str]) -> str:
    """The values that these tasks have in common, and the first of them."""
    from paiprotocol.jobs.problems import shorten

    names = [f"{task.role}[{task.index}]" for task in tasks[:_MAX_NAMED_TASKS]]
    if len(tasks) > len(names):
        names.append(f"{len(tasks) - len(names)} more")
    listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    shown = " ".join(f"{name}={shorten(value)}" for name, value in values.items())
    return "; ".join(filter(None, (shown, listed)))
