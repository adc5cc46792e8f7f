"""Groups of failed tasks: thousands of them are a few lines. The portal's unit tests share cases."""

import json
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.client.models import Task
from openpaisdk.jobs.failure_groups import common_values, failure_groups, failure_lines
from openpaisdk.jobs.task_array import TaskArray, array_of_job

CASES = json.loads(Path(__file__).with_name("failure_groups.json").read_text())


def failed(index: int, cause: str, **more: object) -> Task:
    raw = {"taskIndex": index, "taskState": "FAILED", "containerExitCode": 255, "originUserExitCode": 1}
    return Task("main", {**raw, "cause": cause, **more})


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_groups_are_those_of_the_portal(case: dict[str, Any]) -> None:
    tasks = [Task("main", raw) for raw in case["tasks"]]
    array = array_of_job({"extras": {"openpaisdk": case["job"]}})
    groups = failure_groups(tasks)
    values = common_values(groups, tasks, array) if array else [{} for _ in groups]
    found = [
        {
            "exitCode": group.exit_code,
            "cause": group.cause,
            "tasks": [task.index for task in group.tasks],
            "values": common,
        }
        for group, common in zip(groups, values, strict=True)
    ]
    assert found == case["groups"]


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


def test_lines_have_the_values_that_only_these_tasks_have() -> None:
    array = TaskArray(6, 0, {"lr": ["5", "0.1"], "text": ["x" * 50, "y", "z"], "data": ["all"]})
    tasks = [failed(0, "late"), failed(3, "bad"), failed(4, "bad"), failed(5, "bad")]
    assert failure_lines(tasks, array, "s")[::2] == [
        "3 tasks exited with 1 (lr=0.1; main[3], main[4] and main[5]): bad",
        f"1 task exited with 1 (lr=5 text={'x' * 40}...; main[0]): late",
    ]


def test_of_openpai_the_diagnostics_are_the_cause() -> None:
    task = failed(0, "", containerExitDiagnostics="Pod was evicted\nmore", originUserExitCode=None)
    assert failure_lines([task], None, "s")[0] == "1 task exited with 255 (main[0]): Pod was evicted"
