"""The job that runs failed tasks again: the same cases as in the unit tests of the portal."""

import json
from pathlib import Path

import pytest

from openpaisdk.jobs.failed_tasks import repeat_tasks

CASES = json.loads(Path(__file__).with_name("repeated_tasks.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_failed_tasks_are_repeated_with_their_values_and_indexes(case: dict) -> None:
    assert repeat_tasks(case["job"], case["indexes"]) == case["repeated"]
