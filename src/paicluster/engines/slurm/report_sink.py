"""Report sink: stores reports of tasks on nodes without a shared file system in the tasks' folders.

A client with a gang's ticket is a process of the gang's account. It can download the launch bundle until the
tasks have started, and write their claims, logs and exit records, within limits and nowhere else.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from paicluster.engines.common import task_files
from paicluster.engines.interface import AppendResult, Hint
from paicluster.engines.slurm import container_command, gang_folder, untrusted_files
from paicluster.engines.slurm.launch_bundle import SlurmLaunchBundle
from paicluster.engines.slurm.options import SlurmOptions
from paiprotocol.errors import JOB_CONFLICT, NO_JOB, Conflict, NotFound, Unavailable
from pairuntime.local_files import log_times_format
from pairuntime.slurm import gang_launcher, placement, report_uploader, usage_file
from pairuntime.supervisor import attempt, claim, exit_record
from pairuntime.supervisor.log_segments import SegmentedLog

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_OFFSET = 1 << 52
# Every gap in a log starts a new segment file.
_MAX_SEGMENTS = 64


class SlurmReportSink:
    """Implements the report API for one Slurm engine."""

    def __init__(self, home: gang_folder.SlurmFolders, options: SlurmOptions, files: Executor, hint: Hint):
        """``files``: a single thread, so that concurrent duplicates are processed one after the other."""
        self._home = home
        self._options = options
        self._files = files
        self._hint = hint

    def allows(self, uid: str, ticket: str) -> bool:
        leader = gang_folder.leader_of(self._home, uid)
        expected = (
            None if leader is None else gang_folder.read_flag(self._home.gang(leader), gang_folder.TICKET)
        )
        return expected is not None and hmac.compare_digest(
            expected.encode(), gang_folder.hash_of(ticket).encode()
        )

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> SlurmLaunchBundle:
        return await self._in_files(lambda: self._pack(uid, job, component, rank))

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None:
        await self._in_files(lambda: self._claim(self._home.task(uid), content))
        self._hint(uid)

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        return await self._in_files(lambda: self._append(self._running_task(uid), stream, at, after, data))

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        missing = await self._in_files(lambda: self._end(uid, record, sizes))
        self._hint(uid)
        return missing

    async def record_usage(self, uid: str, data: bytes) -> None:
        def write() -> None:
            gang_folder.write_flag(self._running_task(uid), usage_file.NAME, data.decode(errors="replace"))

        await self._in_files(write)

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        text = data.decode(errors="replace")
        await self._in_files(lambda: gang_folder.write_flag(self._gang(uid), gang_folder.OUTPUT, text))

    async def _in_files(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._files, work)
        except OSError as error:
            # Usually a full disk. The node sends the report again.
            reason = f"The server cannot store reports of tasks: {error.strerror or error}."
            log.warning("%s", reason)
            raise Unavailable(reason, hint="Check the disk of the server's home.") from None

    def _gang(self, uid: str) -> Path:
        path = self._home.gang(uid)
        if not path.is_dir():
            raise NotFound("This uid is not that of a gang.", code=NO_JOB)
        return path

    def _running_task(self, uid: str) -> Path:
        path = self._home.task(uid)
        owner = untrusted_files.read_claim(path)
        # An empty claim is what a crash of this machine left.
        is_buried = owner is None or (owner and "pid" not in owner)
        if is_buried or os.path.lexists(path / exit_record.NAME):
            raise Conflict("The task has ended, or has not started.", code=JOB_CONFLICT)
        return path

    # -- downloads -----------------------------------------------------------------------------

    def _pack(self, uid: str, job: str, component: int | None, rank: int) -> SlurmLaunchBundle:
        path = self._gang(uid)
        text = (path / gang_launcher.GANG).read_bytes()
        description = json.loads(text)
        tasks: list[dict[str, Any]] = description["tasks"]
        if component is not None:
            tasks = [task for task in tasks if task["component"] == component][rank : rank + 1]
        else:
            self._check_owner(path, job)
            if len(tasks) > 1:  # the rendezvous server; each task downloads its own bundle
                tasks = []
        bundle = SlurmLaunchBundle()
        runtime = Path(description["archive"]).parent
        bundle.add_tree(runtime, self._home.root / runtime)
        relative = path.relative_to(self._home.root)
        bundle.add_folder(relative / gang_launcher.RUN)
        for task in tasks:
            self._add_task(bundle, task)
        if self._home.nodes_file.exists():
            bundle.add(relative / description["nodes"], self._home.nodes_file)
        if (path / gang_launcher.ENVIRONMENT_TEMPLATE).exists():
            bundle.add(
                relative / gang_launcher.ENVIRONMENT_TEMPLATE, path / gang_launcher.ENVIRONMENT_TEMPLATE
            )
        # Last: it marks the bundle complete.
        bundle.add(relative / gang_launcher.GANG, text)
        return bundle

    def _check_owner(self, path: Path, job: str) -> None:
        """Only one Slurm job runs a gang; it may repeat the request if the response was lost."""
        owner = gang_folder.read_flag(path, gang_folder.OWNER)
        if owner is None:
            gang_folder.write_flag(path, gang_folder.OWNER, job)
        elif owner != job:
            raise Conflict("Another Slurm job runs these tasks.", code=JOB_CONFLICT)

    def _add_task(self, bundle: SlurmLaunchBundle, task: Mapping[str, Any]) -> None:
        path = self._home.task(task["uid"])
        if os.path.lexists(path / claim.NAME):
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)
        relative = path.relative_to(self._home.root)
        bundle.add_work(relative / gang_folder.WORK)
        for name in (gang_folder.SCRIPT, attempt.SPEC, container_command.LOGIN):
            if name != container_command.LOGIN or (path / name).exists():
                bundle.add(relative / name, path / name)
        if task["sources"]:
            sources = self._home.sources / task["sources"]
            bundle.add(sources.relative_to(self._home.root), sources)

    # -- uploads -------------------------------------------------------------------------------

    def _claim(self, path: Path, content: Mapping[str, Any]) -> None:
        owner = untrusted_files.read_json(path / claim.NAME)
        if owner is None and content.get("nonce"):
            gang_folder.write_flag(path, placement.PLACEMENT, json.dumps(content.get("placement")))
            temporary = path / f"claim.{os.urandom(8).hex()}"
            temporary.write_text(json.dumps({"pid": 0, **content, "placement": None}))
            try:
                # Does not replace a tombstone that was written meanwhile.
                os.link(temporary, path / claim.NAME)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            owner = untrusted_files.read_json(path / claim.NAME)
        if not owner or not content.get("nonce") or owner.get("nonce") != content["nonce"]:
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)

    def _append(self, path: Path, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        if not after <= at <= _MAX_OFFSET:
            raise Conflict("The offsets are invalid.", code=JOB_CONFLICT)
        stop = untrusted_files.read_json(path / attempt.STOP)
        if stream == report_uploader.METRICS:
            return AppendResult(
                _append_metrics(path / gang_folder.WORK / task_files.METRICS_FILE, at, data), stop
            )
        if stream == report_uploader.TIMES:
            return AppendResult(_write_times(path / log_times_format.NAME, at, data), stop)
        with _ReceivedLog(path, stream, self._options) as log:
            if at > log.offset >= after:
                log.skip_to(at)
            if at <= log.offset:
                log.write(data[log.offset - at :])
        # From the disk: if it is full, not everything was written.
        return AppendResult(_ReceivedLog(path, stream, self._options).offset, stop)

    def _end(self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, int] | None:
        path = self._home.task(uid)
        if os.path.lexists(path / exit_record.NAME):
            return None
        self._running_task(uid)
        logs = {stream: _ReceivedLog(path, stream, self._options) for stream in report_uploader.STREAMS}
        ends = {stream: log.offset for stream, log in logs.items()}
        if any(ends[stream] < size for stream, size in sizes.items()):
            return ends
        for log in logs.values():
            log.force()
        fd = exit_record.reserve(str(path))
        try:
            exit_record.write(str(path), fd, dict(record))
        finally:
            os.close(fd)
        # The node deletes its copy after this response.
        exit_record.sync(str(path))
        return None


class _ReceivedLog(SegmentedLog):
    """A log that continues where its files end."""

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

    def __enter__(self) -> _ReceivedLog:
        if self._starts and self._size < self._segment:
            self._fd = os.open(self._last(), os.O_WRONLY | os.O_APPEND)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def skip_to(self, at: int) -> None:
        """Mark the bytes up to the offset as lost."""
        self._drop(at - self._offset)
        while len(self._starts) >= _MAX_SEGMENTS:
            self._drop_oldest(keep=0)

    def force(self) -> None:
        """Sync to disk."""
        with self:
            self.sync()


def _write_times(file: Path, at: int, data: bytes) -> int:
    """Write a part of the index of a log's times; at its beginning instead of what is there."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if not at:
            os.ftruncate(fd, 0)
        end = os.fstat(fd).st_size
        if at <= end and at + len(data) <= report_uploader.MAX_TIMES_BYTES:
            end = max(end, at + os.pwrite(fd, data, at))
        return end
    finally:
        os.close(fd)


def _append_metrics(file: Path, at: int, data: bytes) -> int:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = os.fstat(fd).st_size
        if at <= end and at + len(data) <= report_uploader.MAX_METRICS_BYTES:
            end += os.write(fd, data[end - at :])
        return end
    finally:
        os.close(fd)
