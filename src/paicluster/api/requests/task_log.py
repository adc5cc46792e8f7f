"""Log of a task's attempt, as requests read it: never on the event loop where its folder may not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from paicluster.api.context import Context
from paicluster.logs.log_times import RecordedTimes, read_log_times
from paicluster.logs.log_watcher import LogWatcher, Watch
from paicluster.logs.reader import LogReader, Stream

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskLog:
    """One stream of the log. Reads of a folder that does not answer raise Unavailable."""

    reader: LogReader
    may_stall: bool
    _watcher: LogWatcher

    async def run(self, read: Callable[[], T]) -> T:
        """Read in a thread."""
        return await self._watcher.run(read, may_stall=self.may_stall)

    async def times(self, start: int, end: int) -> RecordedTimes | None:
        """When the bytes of this range were written; None of a log without an index."""
        return await self.run(partial(read_log_times, self.reader.folder, self.reader.stream, start, end))

    def watch(self) -> Watch:
        return self._watcher.watch(self.reader.folder, self.reader.stream, may_stall=self.may_stall)


async def open_log(ctx: Context, uid: str, stream: Stream) -> TaskLog:
    engines, watcher = ctx.engines, ctx.jobs.log_watcher
    if not engines.may_stall(uid):
        return TaskLog(LogReader(engines.log_folder(uid), stream), False, watcher)
    folder = await watcher.stallable_reads.run(lambda: engines.log_folder(uid))
    return TaskLog(LogReader(folder, stream), True, watcher)
