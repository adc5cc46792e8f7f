"""The tasks of an attempt. Of a long array most have ended, so the others are kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from openpaisdk.protocol import TaskRole
from paicluster.store.rows import TaskRow

ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"


class AttemptTasks(dict[str, TaskRow]):
    """By uid, of each task the latest try. None is taken out but by the next try of the same task."""

    __slots__ = ("by_place", "failed", "live", "succeeded", "to_repeat", "unstarted")

    def __init__(self, roles: Iterable[TaskRole], tasks: Iterable[TaskRow] = ()) -> None:
        super().__init__()
        self.live: dict[str, TaskRow] = {}
        # Those that ended, and are to be started again.
        self.to_repeat: dict[str, TaskRow] = {}
        # How many of each role ended for good, and how.
        self.failed: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()
        self.by_place: dict[tuple[str, int], TaskRow] = {}
        # Of each role the indexes of those that no try was begun of, in their order.
        self.unstarted = {role.name: dict.fromkeys(range(role.instances)) for role in roles}
        for task in tasks:
            self[task.uid] = task

    def __setitem__(self, uid: str, task: TaskRow) -> None:
        place = (task.role, task.task_index)
        before = self.by_place.get(place)
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
        self.by_place[place] = task
        for kept, belongs in (
            (self.live, not task.over),
            (self.to_repeat, task.sub_state == ATTEMPT_COMPLETED),
        ):
            if belongs:
                kept[uid] = task
            else:
                kept.pop(uid, None)

    def _count(self, task: TaskRow, number: int) -> None:
        if task.sub_state == COMPLETED:
            (self.failed if task.exit_code else self.succeeded)[task.role] += number


__all__ = ["ATTEMPT_COMPLETED", "COMPLETED", "AttemptTasks"]
