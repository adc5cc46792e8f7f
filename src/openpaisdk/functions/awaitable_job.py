"""``submitit.Job.awaitable()``: methods of a job for ``await``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any


class AwaitableJob:
    """A job with awaitable methods. ``poll_interval`` is submitit's, without effect."""

    def __init__(self, job: Any):
        self.job = job

    async def result(self, poll_interval: float = 1) -> Any:
        return await asyncio.wrap_future(self.job)

    async def results(self, poll_interval: float = 1) -> list[Any]:
        await self.result()  # the failure of any task is raised
        return [await asyncio.wrap_future(task) for task in self._tasks()]

    def results_as_completed(self, poll_interval: float = 1) -> Iterator[Any]:
        """Awaitables of the results of the tasks, in the order in which the tasks end."""
        return iter(asyncio.as_completed([asyncio.wrap_future(task) for task in self._tasks()]))

    async def wait(self, poll_interval: float = 1) -> None:
        await asyncio.wait([asyncio.wrap_future(self.job)])

    def _tasks(self) -> list[Any]:
        return [self.job.task(index) for index in range(self.job.num_tasks)]
