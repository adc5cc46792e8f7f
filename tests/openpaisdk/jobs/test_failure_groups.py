"""Groups of failed tasks: thousands of them are a few lines."""

from openpaisdk.client.models import Task
from openpaisdk.jobs.failure_groups import failure_groups, failure_lines
from openpaisdk.jobs.task_array import TaskArray


def failed(index: int, cause: str, **more: object) -> Task:
    raw = {"taskIndex": index, "taskState": "FAILED", "containerExitCode": 255, "originUserExitCode": 1}
    return Task("main", {**raw, "cause": cause, **more})


def test_thousands_of_tasks_are_a_few_lines() -> None:
    causes = ["Exit code 1: lost node 0x{}", "Exit code 1", *(f"it raised {c}Error" for c in "ABCDEF")]
    tasks = [failed(i, causes[i % len(causes)].format(i)) for i in range(8000)]
    tasks.append(Task("main", {"taskIndex": 8000, "taskState": "SUCCEEDED", "cause": ""}))
    lines = failure_lines(tasks, None, "sweep")
    assert lines[:2] == [
        "1000 tasks exited with 1 (main[0], main[8], main[16] and 997 more): lost node 0x0",
        "  pai logs sweep --task main:0",
    ]
    assert lines[2] == "1000 tasks exited with 1 (main[1], main[9], main[17] and 997 more)"
    assert lines[-1] == "3000 more failed for 3 other causes: pai job-status sweep tasks"
    assert len(lines) == 11


def test_the_largest_group_comes_first_with_the_values_of_all_its_tasks() -> None:
    array = TaskArray(6, 0, {"lr": ["5", "0.1"], "seed": ["1", "2", "3"], "data": ["all"]})
    tasks = [failed(4, "late"), failed(0, "bad"), failed(1, "bad"), failed(2, "bad")]
    assert [len(group.tasks) for group in failure_groups(tasks)] == [3, 1]
    assert failure_lines(tasks, array, "s")[::2] == [
        "3 tasks exited with 1 (lr=5; main[0], main[1] and main[2]): bad",
        "1 task exited with 1 (lr=0.1 seed=2 data=all; main[4]): late",
    ]


def test_of_openpai_the_diagnostics_are_the_cause() -> None:
    task = failed(0, "", containerExitDiagnostics="Pod was evicted\nmore", originUserExitCode=None)
    assert failure_lines([task], None, "s")[0] == "1 task exited with 255 (main[0]): Pod was evicted"
