"""What tasks on nodes without our file system say: kept where they would have written it themselves.

Whoever has a gang's ticket is a process of its account. It can fetch what its tasks need until they have
begun, and write their claims, logs and ends: each within its limits, and nowhere else.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from openpaisdk.errors import JOB_CONFLICT, NO_JOB, Conflict, NotFound
from paicluster.engines.common import task_files
from paicluster.engines.interface import AppendResult, Hint
from paicluster.engines.slurm import container_command, gang_folder, untrusted_files
from paicluster.engines.slurm.launch_bundle import SlurmLaunchBundle
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm import gang_launcher as inside
from pairuntime.slurm import placement, report_uploader
from pairuntime.supervisor import attempt, claim, exit_record
from pairuntime.supervisor.log_segments import SegmentedLog

T = TypeVar("T")

_FARTHEST = 1 << 52
# Whoever leaves gaps has them each begin a file.
_MOST_SEGMENTS = 64


class SlurmReportSink:
    def __init__(self, home: gang_folder.SlurmFolders, options: SlurmOptions, files: Executor, hint: Hint):
        """``files``: one thread, so that what is said twice at once is taken one after the other."""
        self._home = home
        self._options = options
        self._files = files
        self._hint = hint

    def allows(self, uid: str, ticket: str) -> bool:
        leader = gang_folder.leader_of(self._home, uid)
        kept = None if leader is None else gang_folder.read_flag(self._home.gang(leader), gang_folder.TICKET)
        return kept is not None and hmac.compare_digest(kept.encode(), gang_folder.hash_of(ticket).encode())

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> SlurmLaunchBundle:
        return await self._do(lambda: self._pack(uid, job, component, rank))

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None:
        await self._do(lambda: self._claim(self._home.task(uid), content))
        self._hint(uid)

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        return await self._do(lambda: self._append(self._running(uid), stream, at, after, data))

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        missing = await self._do(lambda: self._end(uid, record, sizes))
        self._hint(uid)
        return missing

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        text = data.decode(errors="replace")
        await self._do(lambda: gang_folder.write_flag(self._gang(uid), gang_folder.OUTPUT, text))

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)

    def _gang(self, uid: str) -> Path:
        path = self._home.gang(uid)
        if not path.is_dir():
            raise NotFound("These tasks are known by another of them.", code=NO_JOB)
        return path

    def _running(self, uid: str) -> Path:
        path = self._home.task(uid)
        owner = untrusted_files.read_claim(path)
        # An empty one is what a crash of this machine left of somebody's.
        buried = owner is None or (owner and "pid" not in owner)
        if buried or os.path.lexists(path / exit_record.NAME):
            raise Conflict("The task is over, or has not begun.", code=JOB_CONFLICT)
        return path

    # -- what they fetch -----------------------------------------------------------------------

    def _pack(self, uid: str, job: str, component: int | None, rank: int) -> SlurmLaunchBundle:
        path = self._gang(uid)
        text = (path / inside.GANG).read_bytes()
        said = json.loads(text)
        own: list[dict[str, Any]] = said["tasks"]
        if component is not None:
            own = [task for task in own if task["component"] == component][rank : rank + 1]
        else:
            self._own(path, job)
            if len(own) > 1:  # the pilot of several, who each fetch what is theirs
                own = []
        parcel = SlurmLaunchBundle()
        runtime = Path(said["archive"]).parent
        parcel.add_tree(runtime, self._home.root / runtime)
        here = path.relative_to(self._home.root)
        parcel.add_folder(here / inside.RUN)
        for task in own:
            self._add_task(parcel, task)
        if self._home.nodes_file.exists():
            parcel.add(here / said["nodes"], self._home.nodes_file)
        if (path / inside.COMMON_BLANK).exists():
            parcel.add(here / inside.COMMON_BLANK, path / inside.COMMON_BLANK)
        # With it everything is there.
        parcel.add(here / inside.GANG, text)
        return parcel

    def _own(self, path: Path, job: str) -> None:
        """Only one job of Slurm runs a gang; it may ask again when our answer got lost."""
        owner = gang_folder.read_flag(path, gang_folder.OWNER)
        if owner is None:
            gang_folder.write_flag(path, gang_folder.OWNER, job)
        elif owner != job:
            raise Conflict("Another job of Slurm runs these tasks.", code=JOB_CONFLICT)

    def _add_task(self, parcel: SlurmLaunchBundle, task: Mapping[str, Any]) -> None:
        path = self._home.task(task["uid"])
        if os.path.lexists(path / claim.NAME):
            raise Conflict("The task has begun, or will not.", code=JOB_CONFLICT)
        here = path.relative_to(self._home.root)
        parcel.add_work(here / gang_folder.WORK)
        for name in (gang_folder.SCRIPT, attempt.SPEC, container_command.LOGIN):
            if name != container_command.LOGIN or (path / name).exists():
                parcel.add(here / name, path / name)
        if task["sources"]:
            bundle = self._home.sources / task["sources"]
            parcel.add(bundle.relative_to(self._home.root), bundle)

    # -- what they say -------------------------------------------------------------------------

    def _claim(self, path: Path, said: Mapping[str, Any]) -> None:
        owner = untrusted_files.json_of(path / claim.NAME)
        if owner is None and said.get("word"):
            gang_folder.write_flag(path, placement.PLACE, json.dumps(said.get("place")))
            aside = path / f"claim.{os.urandom(8).hex()}"
            aside.write_text(json.dumps({"pid": 0, **said, "place": None}))
            try:
                # Not over a tombstone that was put there meanwhile.
                os.link(aside, path / claim.NAME)
            except FileExistsError:
                pass
            finally:
                aside.unlink()
            owner = untrusted_files.json_of(path / claim.NAME)
        if not owner or not said.get("word") or owner.get("word") != said["word"]:
            raise Conflict("The task has begun, or will not.", code=JOB_CONFLICT)

    def _append(self, path: Path, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        if not after <= at <= _FARTHEST:
            raise Conflict("There are no such offsets.", code=JOB_CONFLICT)
        stop = untrusted_files.json_of(path / attempt.STOP)
        if stream == report_uploader.FIGURES:
            return AppendResult(
                _append_figures(path / gang_folder.WORK / task_files.METRICS_FILE, at, data), stop
            )
        with _Received(path, stream, self._options) as log:
            if at > log.offset >= after:
                log.skip_to(at)
            if at <= log.offset:
                log.write(data[log.offset - at :])
        # As it is on disk: a full one may not have taken everything.
        return AppendResult(_Received(path, stream, self._options).offset, stop)

    def _end(self, uid: str, said: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, int] | None:
        path = self._home.task(uid)
        if os.path.lexists(path / exit_record.NAME):
            return None
        self._running(uid)
        logs = {stream: _Received(path, stream, self._options) for stream in report_uploader.STREAMS}
        ends = {stream: log.offset for stream, log in logs.items()}
        if any(ends[stream] < size for stream, size in sizes.items()):
            return ends
        for log in logs.values():
            log.force()
        fd = exit_record.reserve(str(path))
        try:
            exit_record.write(str(path), fd, dict(said))
        finally:
            os.close(fd)
        # The node forgets all of it when it hears that.
        exit_record.sync(str(path))
        return None


class _Received(SegmentedLog):
    """A log that goes on where its files end, whoever wrote them."""

    def __init__(self, path: Path, stream: str, options: SlurmOptions):
        super().__init__(str(path), stream, options.log_limit, options.log_segment)
        prefix = f"{stream}."
        ends = [name.removeprefix(prefix) for name in os.listdir(path) if name.startswith(prefix)]
        self._starts = sorted(int(end) for end in ends if end.isdecimal())
        if self._starts:
            self._size = self._last().stat().st_size
            self._offset = self._starts[-1] + self._size

    def _last(self) -> Path:
        return Path(f"{self._prefix}{self._starts[-1]}")

    def __enter__(self) -> _Received:
        if self._starts and self._size < self._segment:
            self._fd = os.open(self._last(), os.O_WRONLY | os.O_APPEND)
        return self

    def __exit__(self, *what: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def skip_to(self, at: int) -> None:
        """What is between is nowhere any more."""
        self._drop(at - self._offset)
        while len(self._starts) >= _MOST_SEGMENTS:
            self._drop_oldest(keep=0)

    def force(self) -> None:
        """To disk."""
        with self:
            self.sync()


def _append_figures(file: Path, at: int, data: bytes) -> int:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = os.fstat(fd).st_size
        if at <= end and at + len(data) <= report_uploader.MOST_FIGURES:
            end += os.write(fd, data[end - at :])
        return end
    finally:
        os.close(fd)
