"""The indexes of an attempt's tasks agree with a scan over all tasks."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from paicluster.controller.attempt_tasks import AttemptTasks
from paicluster.store.rows import TaskRow
from paiprotocol.jobs import TaskRole, read_job
from support.server_fixture import job as job_of

STATES = ("AttemptPreparing", "AttemptRunning", "AttemptCompleted", "Completed")


def roles_of(instances: int) -> tuple[TaskRole, ...]:
    return tuple(read_job(json.dumps(job_of("array", "true", instances=instances))).task_roles)


def row(role: str, index: int, number: int, state: str) -> TaskRow:
    uid = f"{role}-{index}-{number}"
    return TaskRow(uid, 1, 0, role, 0, index, number, uid, state)


@pytest.mark.parametrize("seed", range(20))
def test_indexes_agree_with_a_full_scan(seed: int) -> None:
    dice = random.Random(seed)
    roles = roles_of(12)
    tasks = AttemptTasks(roles)
    latest: dict[tuple[str, int], TaskRow] = {}
    for number in range(200):
        role, index = roles[0].name, dice.randrange(12)
        before = latest.get((role, index))
        if before is None or (before.sub_state == "AttemptCompleted" and dice.random() < 0.5):
            task = row(role, index, number, dice.choice(STATES))
        else:
            task = replace(before, sub_state=dice.choice(STATES))
        task = replace(task, exit_code=dice.choice((0, 0, 255)) if task.ended else None)
        latest[role, index] = tasks[task.uid] = task
        assert dict(tasks) == {each.uid: each for each in latest.values()}
        assert tasks.by_index == latest
        assert tasks.live == {each.uid: each for each in latest.values() if not each.ended}
        repeated = {each.uid: each for each in latest.values() if each.sub_state == "AttemptCompleted"}
        assert tasks.to_repeat == repeated
        ended = [each for each in latest.values() if each.sub_state == "Completed"]
        assert tasks.failed == Counter(each.role for each in ended if each.exit_code)
        assert tasks.succeeded == Counter(each.role for each in ended if not each.exit_code)
        assert list(tasks.unstarted[role]) == [index for index in range(12) if (role, index) not in latest]
    assert AttemptTasks(roles, latest.values()) == tasks
