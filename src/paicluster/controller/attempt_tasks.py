"""Tasks of one attempt. Most tasks of a long array have ended, so the live ones are indexed separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from paicluster.store.rows import TaskRow
from paiprotocol.jobs import TaskRole

ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"


class AttemptTasks(dict[str, TaskRow]):
    """The latest attempt of each task, by uid. An entry is replaced only by the next attempt of its task."""

    __slots__ = ("by_index", "failed", "live", "succeeded", "to_repeat", "unstarted")

    def __init__(self, roles: Iterable[TaskRole], tasks: Iterable[TaskRow] = ()) -> None:
        super().__init__()
        self.live: dict[str, TaskRow] = {}
        # Ended, to be started again.
        self.to_repeat: dict[str, TaskRow] = {}
        # Number of finally ended tasks of each role, by outcome.
        self.failed: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()
        self.by_index: dict[tuple[str, int], TaskRow] = {}
        # Per role, the indexes of tasks without any attempt, in order.
        self.unstarted = {role.name: dict.fromkeys(range(role.instances)) for role in roles}
        for task in tasks:
            self[task.uid] = task

    def __setitem__(self, uid: str, task: TaskRow) -> None:
        key = (task.role, task.task_index)
        before = self.by_index.get(key)
        if before is None:
            self.unstarted.get(task.role, {}).pop(task.task_index, None)
        elif before.uid != uid:
            del self[before.uid]
            self.live.pop(before.uid, None)
            self.to_repeat.pop(before.uid, None)
        if before is not None:
            self._count(before, -1)
        self._count(task, 1)
        super().__setitem__(uid, task)
        self.by_index[key] = task
        for index, belongs in (
            (self.live, not task.ended),
            (self.to_repeat, task.sub_state == ATTEMPT_COMPLETED),
        ):
            if belongs:
                index[uid] = task
            else:
                index.pop(uid, None)

    def _count(self, task: TaskRow, number: int) -> None:
        if task.sub_state == COMPLETED:
            (self.failed if task.exit_code else self.succeeded)[task.role] += number


__all__ = ["ATTEMPT_COMPLETED", "COMPLETED", "AttemptTasks"]
